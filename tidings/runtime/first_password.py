"""The built-in administrator, and the password that is the first one of an installation."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from pathlib import Path

from tidings.runtime import env

ADMINISTRATOR = "admin"
# On loopback alone; and only until the first login.
DEFAULT = "secret"

VARIABLE = "TIDINGS_ADMIN_PASSWORD"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class FirstPassword:
    """given: by the environment, empty if not; is_default_safe: only this machine reaches the API."""

    given: str
    is_default_safe: bool


def make() -> str:
    """A random one, which obeys the rule for passwords."""
    return f"{secrets.token_urlsafe(16)}-Aa1"


def read(variables: Mapping[str, str]) -> str:
    """What the environment gives, by itself or in a file; empty for nothing. Raises `env.mistake`."""
    path = variables.get(f"{VARIABLE}_FILE")
    if not path:
        return variables.get(VARIABLE, "")
    if variables.get(VARIABLE):
        raise env.mistake(f"{VARIABLE} and {VARIABLE}_FILE are both set")
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        raise env.mistake(f"{VARIABLE}_FILE {path}: {getattr(error, 'strerror', None) or 'no text'}") from None
