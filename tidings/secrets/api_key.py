"""API keys for monitoring and for operators, from a variable or from the file that `<variable>_FILE` names.

The monitoring key allows GET of health and metrics. The operator key allows requests that change something.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated, Any

from tidings.config import env
from tidings.secrets import secret_sources

VARIABLE = "WA_API_KEY"
OPERATOR_VARIABLE = "TIDINGS_OPERATOR_KEY"
CONSOLE_VARIABLE, LINK_VARIABLE = "TIDINGS_CONSOLE_KEY", "TIDINGS_CONSOLE_LINK"

_SCHEME = b"apikey "


class ApiKey(str):
    """API key of 12 to 128 characters, or empty for none. Its repr hides the value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ApiKey(…)" if self else "ApiKey()"

    def is_given(self, authorization: bytes) -> bool:
        """Return whether this `Authorization` header has the scheme `Apikey` and this key."""
        scheme, given = authorization[: len(_SCHEME)].lower(), authorization[len(_SCHEME) :].strip()
        return bool(self) and scheme == _SCHEME and hmac.compare_digest(given, self.encode())


NO_KEY = ApiKey()


def _optional(variable: str) -> Any:
    def read(key: str) -> ApiKey:
        if key and not 12 <= len(key) <= 128:
            raise env.mistake(f"{variable} does not have 12 to 128 characters")
        return ApiKey(key)

    def find(data: Mapping[str, Any]) -> ApiKey:
        return read(secret_sources.given(data["variables"], variable))

    return env.computed(find, read)


OptionalKey = Annotated[ApiKey, _optional(VARIABLE)]
OptionalOperatorKey = Annotated[ApiKey, _optional(OPERATOR_VARIABLE)]
# Operator key of the Coreapps (`tidings.secrets.operator_key`) that the console uses, and key of its one-time link.
OptionalConsoleKey = Annotated[ApiKey, _optional(CONSOLE_VARIABLE)]
OptionalLinkKey = Annotated[ApiKey, _optional(LINK_VARIABLE)]
API_KEY: Any = env.COMPUTED
