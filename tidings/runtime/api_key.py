"""`WA_API_KEY`, which opens what monitoring looks at."""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from tidings.runtime import env

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
        raise env.mistake("WA_API_KEY does not have 12 to 128 characters")
    return ApiKey(key)


OptionalKey = Annotated[ApiKey, env.text(_read)]
API_KEY: Any = env.variable("WA_API_KEY", NO_KEY)
