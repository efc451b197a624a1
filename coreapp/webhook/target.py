"""Targets of callbacks, from the business's present settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from coreapp import signature
from coreapp.config import Config
from coreapp.webhook import batches, retry
from coreapp.webhook.batches import Join
from coreapp.webhook.cloud import app_signature
from tidings.storage.business.callbacks import CLOUD_ACCOUNT, Callback

# Returns the headers that sign a body: called with the keys, the event id, the Unix time in seconds, and the body.
Sign = Callable[[Sequence[bytes], str, int, bytes], dict[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackTarget:
    """Present target of callbacks."""

    url: str  # empty while none is set; callbacks then wait
    concurrency: int  # concurrent posts
    policy: retry.Policy
    keys: Sequence[bytes]  # keys that sign every body
    # PEM certificates, the only ones that servers are verified against; empty for those of the system
    authorities: bytes = b""
    sign: Sign = signature.headers
    batch: int = 1  # largest number of callbacks in one post
    join: Join = batches.join_statuses
    account_url: str = ""  # URL of callbacks about accounts and templates, which only the Cloud API has
    # whether callbacks without a URL become dead letters, because the other format has a URL
    is_replaced: bool = False
    extra_headers: Mapping[str, str] = dataclasses.field(default_factory=dict)  # carried by every post

    @property
    def is_set(self) -> bool:
        return bool(self.url or self.account_url)

    def url_of(self, callback: Callback) -> str:
        """Return the URL to which a callback is posted; empty for none."""
        return self.account_url if callback.kind == CLOUD_ACCOUNT else self.url


class CurrentTargets:
    """Targets in force: the webhook of v1, and the callbacks of the Cloud API. They follow the settings."""

    def __init__(self, config: Config, *, any_2xx: bool, statuses_per_post: int, cloud_batch: int) -> None:
        """Follow the settings.

        statuses_per_post: `webhooks.max_statuses_per_post` of numbers that do not set it
        cloud_batch: largest number of callbacks of the Cloud API in one post
        """
        self._config = config
        self._any_2xx = any_2xx
        self._statuses_per_post = statuses_per_post
        self._cloud_batch = cloud_batch
        self._settings_changed()
        config.on_change(self._settings_changed)

    def v1(self) -> CallbackTarget:
        return self._v1

    def cloud(self) -> CallbackTarget:
        return self._cloud

    def is_set(self) -> bool:
        """Return whether a webhook URL is set."""
        return self._v1.is_set or self._cloud.is_set

    def _settings_changed(self) -> None:
        config, cloud = self._config, self._config.cloud
        webhooks = config.settings.webhooks
        self._v1 = CallbackTarget(
            webhooks.url,
            webhooks.max_concurrent_requests,
            self._policy(retry.GIVE_UP_AFTER),
            config.signing_keys,
            config.authorities,
            batch=webhooks.max_statuses_per_post or self._statuses_per_post,
            is_replaced=not webhooks.url and cloud is not None,
            extra_headers=config.headers,
        )
        self._cloud = CallbackTarget(
            cloud.url if cloud is not None else "",
            webhooks.max_concurrent_requests,
            self._policy(retry.CLOUD_GIVE_UP_AFTER),
            (cloud.secret.encode(),) if cloud is not None else (),
            config.authorities,
            sign=app_signature.headers,
            batch=self._cloud_batch,
            join=batches.join_entries,
            account_url=cloud.app_url if cloud is not None else "",
            is_replaced=cloud is None and bool(webhooks.url),
        )

    def _policy(self, give_up_after: float) -> retry.Policy:
        settings = self._config.settings
        return retry.Policy(
            backoff=settings.callback_backoff_delay_ms / 1000,
            max_backoff=settings.max_callback_backoff_delay_ms / 1000,
            any_2xx=self._any_2xx,
            give_up_after=give_up_after,
        )
