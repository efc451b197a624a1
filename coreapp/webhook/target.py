"""Target of callbacks, from the business's present settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.config import Config
from coreapp.webhook import retry


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackTarget:
    """Present target of callbacks."""

    url: str  # empty while none is set; callbacks then wait
    concurrency: int  # concurrent posts
    policy: retry.Policy
    keys: Sequence[bytes]  # keys that sign every body
    # PEM certificates, the only ones that servers are verified against; empty for those of the system
    authorities: bytes = b""


class CurrentTarget:
    """Target in force. It follows the settings."""

    def __init__(self, config: Config, *, any_2xx: bool) -> None:
        self._config = config
        self._any_2xx = any_2xx
        self._target = self._read()
        config.on_change(self._settings_changed)

    def __call__(self) -> CallbackTarget:
        return self._target

    def is_set(self) -> bool:
        """Return whether a webhook URL is set."""
        return bool(self._target.url)

    def _settings_changed(self) -> None:
        self._target = self._read()

    def _read(self) -> CallbackTarget:
        settings = self._config.settings
        policy = retry.Policy(
            backoff=settings.callback_backoff_delay_ms / 1000,
            max_backoff=settings.max_callback_backoff_delay_ms / 1000,
            any_2xx=self._any_2xx,
        )
        webhooks = settings.webhooks
        return CallbackTarget(
            webhooks.url,
            webhooks.max_concurrent_requests,
            policy,
            self._config.signing_keys,
            self._config.authorities,
        )
