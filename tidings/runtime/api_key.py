"""The keys of monitoring and of operators, from a variable or from a file that `<variable>_FILE` names.

The monitoring key opens GET of health and metrics. The operator key opens what changes something.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated, Any

from tidings.runtime import env, secret_sources

VARIABLE = "WA_API_KEY"
OPERATOR_VARIABLE = "TIDINGS_OPERATOR_KEY"

_SCHEME = b"apikey "


class ApiKey(str):
    """12 to 128 characters, or empty for none; never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ApiKey(…)" if self else "ApiKey()"

    def is_given(self, authorization: bytes) -> bool:
        """Is this value of the header `Apikey` and the key?"""
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

    return env.made(find, read)


OptionalKey = Annotated[ApiKey, _optional(VARIABLE)]
OptionalOperatorKey = Annotated[ApiKey, _optional(OPERATOR_VARIABLE)]
API_KEY: Any = env.MADE
