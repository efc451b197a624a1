"""Environment variables that nothing reads: a misspelt setting is reported instead of ignored."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping, Sequence

from cli.known_variables import COMPOSE, SECRETS, SETTINGS
from tidings.config.env import SettingsError, parse_flag
from tidings.secrets import secret_sources

log = logging.getLogger(__name__)

PREFIXES = ("TIDINGS_", "WA_")
STRICT = "TIDINGS_STRICT_ENV"


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadVariable:
    """Environment variable that nothing reads."""

    name: str
    nearest: str  # the most similar known name; empty when none is similar

    def __str__(self) -> str:
        return f"{self.name} is not a known variable" + (f" (did you mean {self.nearest}?)" if self.nearest else "")


def find(variables: Mapping[str, str]) -> Sequence[UnreadVariable]:
    """Return the set variables with a prefix of Tidings that nothing reads, sorted by name."""
    known = _known()
    unread = sorted(name for name in variables if name.startswith(PREFIXES) and name not in known)
    return [UnreadVariable(name, _nearest(name, known)) for name in unread]


def report(variables: Mapping[str, str]) -> None:
    """Log a warning per unread variable. Raises `SettingsError` naming all of them if `TIDINGS_STRICT_ENV` is on."""
    unread, strict = find(variables), is_strict(variables)
    if unread and strict:
        raise SettingsError("; ".join(map(str, unread)) + f"; correct or unset them, or unset {STRICT}")
    for variable in unread:
        log.warning("environment.unread", extra={"variable": variable.name, "nearest": variable.nearest})


def is_strict(variables: Mapping[str, str]) -> bool:
    """Return whether a process refuses to start with a variable that nothing reads. Raises `SettingsError`."""
    try:
        return parse_flag(variables.get(STRICT) or "0")
    except ValueError as error:
        raise SettingsError(f"{STRICT}={variables[STRICT]!r} {error}") from None


def _known() -> frozenset[str]:
    files = {name + secret_sources.FILE for name in SECRETS}
    return SETTINGS | SECRETS | COMPOSE | files | {"TIDINGS_MASTER_KEY" + secret_sources.COMMAND}


def _nearest(name: str, known: frozenset[str]) -> str:
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else ""
