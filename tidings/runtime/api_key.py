"""`WA_API_KEY`, or a file that `WA_API_KEY_FILE` names, which opens what monitoring looks at."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated, Any

from tidings.runtime import env, secret_sources

VARIABLE = "WA_API_KEY"

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


def _read(key: str) -> ApiKey:
    if key and not 12 <= len(key) <= 128:
        raise env.mistake(f"{VARIABLE} does not have 12 to 128 characters")
    return ApiKey(key)


def _find(data: Mapping[str, Any]) -> ApiKey:
    return _read(secret_sources.given(data["variables"], VARIABLE))


OptionalKey = Annotated[ApiKey, env.made(_find, _read)]
API_KEY: Any = env.MADE
