"""Settings from environment variables: every mistake is collected, then reported together."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

MIB = 1024 * 1024


class SettingsError(Exception):
    """The environment holds values that cannot be used; `str()` names each of them in one line."""


class Variables(BaseSettings):
    """Base of what is read from environment variables.

    A field that is given as an argument is taken as it is. An empty variable counts as unset.

    variables: the environment. Without it, as when settings are made in code, no environment is read.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, case_sensitive=True, enable_decoding=False
    )

    variables: Mapping[str, str] = Field(default={}, repr=False)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        environment = EnvSettingsSource(settings_cls)
        given = init_settings.init_kwargs.get("variables", {})
        # Fields may be given by their own names, too, which are in lower case.
        environment.env_vars = {name: value for name, value in given.items() if value and name.isupper()}
        return init_settings, environment

    @classmethod
    def part(cls, variables: Mapping[str, str], **given: Any) -> Self:
        """For a field of other settings: its mistakes are reported with theirs. The environment is not kept.

        given: fields that are taken as they are.
        """
        return cls(variables=variables, **given).model_copy(update={"variables": {}})

    @classmethod
    def read(cls, variables: Mapping[str, str], **given: Any) -> Self:
        """Raises `SettingsError` with every mistake at once. given: as of `part`."""
        try:
            return cls.part(variables, **given)
        except pydantic.ValidationError as error:
            raise SettingsError("; ".join(_problems(error))) from None

    @classmethod
    def mistakes(cls, variables: Mapping[str, str], **given: Any) -> Sequence[str]:
        """What `read` would raise, a line for each."""
        try:
            cls.part(variables, **given)
        except pydantic.ValidationError as error:
            return _problems(error)
        return []


def _problems(error: pydantic.ValidationError) -> Sequence[str]:
    found = [_problem(entry) for entry in error.errors(include_url=False) if entry["type"] != _FOLLOWS]
    return list(dict.fromkeys(found))


def _problem(entry: Any) -> str:
    return f"{entry['loc'][-1]}={entry['input']!r} {entry['msg']}" if entry["type"] == _VALUE else str(entry["msg"])


# Types of errors: of a value, which is shown before the message; of more, or of a secret; of what follows from another.
_VALUE, _MISTAKE, _FOLLOWS = "value", "mistake", "follows"


def wrong(text: str) -> PydanticCustomError:
    """Raised for a value of a variable; `text` goes on from the variable and its value."""
    return PydanticCustomError(_VALUE, "{text}", {"text": text})


def mistake(text: str) -> PydanticCustomError:
    """Raised for what `text` says alone, as it must for a secret."""
    return PydanticCustomError(_MISTAKE, "{text}", {"text": text})


def variable(name: str, default: Any = "", *, shown: bool = True) -> Any:
    """A field that comes from an environment variable. A default that is a string is read as if it were set."""
    return Field(default, validation_alias=name, validate_default=True, repr=shown)


def text(check: Callable[[str], Any]) -> PlainValidator:
    """Reads a variable by `check`; what is given in code, other than strings, is taken as it is."""
    return PlainValidator(lambda value: check(value) if isinstance(value, str) else value)


def made(make: Callable[[Mapping[str, Any]], Any], read: Callable[[str], Any] | None = None) -> PlainValidator:
    """For a field that is not given: it is made of the fields before it. `read` is for its variable, if it has one."""

    def check(value: Any, info: pydantic.ValidationInfo) -> Any:
        if value is not None:
            return read(value) if read is not None and isinstance(value, str) else value
        try:
            return make(info.data)
        except KeyError:
            # A field before it is wrong, and reported.
            raise PydanticCustomError(_FOLLOWS, "not made") from None

    return PlainValidator(check)


MADE: Any = Field(default=None, validate_default=True)
# As `MADE`, and not printed.
HIDDEN: Any = Field(default=None, validate_default=True, repr=False)


def parse_choice(value: str, *choices: str) -> str:
    for word in choices:
        if value.lower() == word.lower():
            return word
    raise wrong(f"is not one of {', '.join(choices)}")


def choice(*choices: str) -> PlainValidator:
    """One of these words, in upper or lower case."""
    return text(lambda value: parse_choice(value, *choices))


def integer(low: int = 0, high: int = 2**31 - 1, *, unit: float = 1) -> PlainValidator:
    """A whole number of `unit`."""

    def check(value: str) -> float:
        try:
            found = int(value)
        except ValueError:
            found = low - 1
        if not low <= found <= high:
            raise wrong(f"is not a whole number from {low} to {high}")
        return found * unit

    return text(check)


def parse_number(value: str, low: float = 0.0, high: float = 1e9) -> float:
    try:
        found = float(value)
    except ValueError:
        found = low - 1
    if not low <= found <= high:
        raise wrong(f"is not a number from {low} to {high}")
    return found


def number(low: float = 0.0, high: float = 1e9, *, unit: float = 1) -> PlainValidator:
    """A number of `unit`."""
    return text(lambda value: parse_number(value, low, high) * unit)


def parse_flag(value: str) -> bool:
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() not in ("0", "false", "no", "off"):
        raise wrong("is not a yes or no (use 1 or 0)")
    return False


def parse_address(value: str) -> tuple[str, int]:
    """`host:port`."""
    host, _, port = value.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise wrong("is not host:port")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Is what listens on this host reached from this machine alone?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_path(value: str) -> Path:
    return Path(value).expanduser().absolute()


def parse_milliseconds(value: str) -> tuple[float, float]:
    """`80..150` or `100`, in milliseconds; returned in seconds."""
    low, _, high = value.partition("..")
    try:
        least, most = float(low) / 1000, float(high or low) / 1000
    except ValueError:
        least = most = -1.0
    if not 0.0 <= least <= most < float("inf"):
        raise wrong("is not milliseconds like 100 or 80..150")
    return least, most


Flag = Annotated[bool, text(parse_flag)]
Address = Annotated[tuple[str, int], text(parse_address)]


def printable(settings: Variables) -> dict[str, str]:
    """The fields of a settings object for the log at start, without those that are not for its repr; secrets show as
    `Secrets(…)`."""
    fields = type(settings).model_fields
    return {name: repr(getattr(settings, name)) for name, field in fields.items() if field.repr}
