"""The built-in administrator and an installation's first password."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from pathlib import Path

from tidings.config import env

ADMINISTRATOR = "admin"
# Only on loopback, and only until the first login.
DEFAULT = "secret"

VARIABLE = "TIDINGS_ADMIN_PASSWORD"


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class FirstPassword:
    """First password of the administrator."""

    # From the environment; empty when it gives none.
    given: str
    # Whether only this machine can reach the API, which makes `DEFAULT` acceptable.
    is_default_safe: bool


def make() -> str:
    """Return a random password that satisfies the password rule."""
    return f"{secrets.token_urlsafe(16)}-Aa1"


def read(variables: Mapping[str, str]) -> str:
    """Return the password from the variable or from the file that it names; empty for none. Raises `env.mistake`."""
    path = variables.get(f"{VARIABLE}_FILE")
    if not path:
        return variables.get(VARIABLE, "")
    if variables.get(VARIABLE):
        raise env.mistake(f"{VARIABLE} and {VARIABLE}_FILE are both set")
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        raise env.mistake(f"{VARIABLE}_FILE {path}: {getattr(error, 'strerror', None) or 'no text'}") from None
