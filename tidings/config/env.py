"""Settings from environment variables; all mistakes are collected and reported together."""

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

from tidings.config import host_names

MIB = 1024 * 1024


class SettingsError(Exception):
    """The environment holds values that cannot be used; `str()` names each of them in one line."""


class Variables(BaseSettings):
    """Base of settings that are read from environment variables.

    A field that is given as an argument is taken as it is. An empty variable counts as unset.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, case_sensitive=True, enable_decoding=False
    )

    # The environment; empty when settings are made in code, which then reads no environment.
    variables: Mapping[str, str] = Field(default={}, repr=False)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        environment = EnvSettingsSource(settings_cls)
        given = init_settings.init_kwargs.get("variables", {})
        # Fields may also be given by their own names, which are in lower case.
        environment.env_vars = {name: value for name, value in given.items() if value and name.isupper()}
        return init_settings, environment

    @classmethod
    def part(cls, variables: Mapping[str, str], **given: Any) -> Self:
        """Read settings for a field of other settings, whose validation reports the mistakes.

        The environment is not kept.

        given: fields that are taken as they are.
        """
        return cls(variables=variables, **given).model_copy(update={"variables": {}})

    @classmethod
    def read(cls, variables: Mapping[str, str], **given: Any) -> Self:
        """Read settings. Raises `SettingsError` with all mistakes. given: fields that are taken as they are."""
        try:
            return cls.part(variables, **given)
        except pydantic.ValidationError as error:
            raise SettingsError("; ".join(_problems(error))) from None

    @classmethod
    def mistakes(cls, variables: Mapping[str, str], **given: Any) -> Sequence[str]:
        """Return the mistakes that `read` would raise, one line each."""
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


# Types of errors: `_VALUE` shows the value before the message; `_MISTAKE` is the message only, as for secrets;
# `_FOLLOWS` is caused by another mistake, and not reported.
_VALUE, _MISTAKE, _FOLLOWS = "value", "mistake", "follows"


def wrong(text: str) -> PydanticCustomError:
    """Return an error about the value of a variable; `text` continues a line that starts with `NAME=value`."""
    return PydanticCustomError(_VALUE, "{text}", {"text": text})


def mistake(text: str) -> PydanticCustomError:
    """Return an error whose message is `text` alone, as it must be for a secret."""
    return PydanticCustomError(_MISTAKE, "{text}", {"text": text})


def variable(name: str, default: Any = "", *, shown: bool = True) -> Any:
    """Return a field that is read from an environment variable. A default that is a string is parsed like a value."""
    return Field(default, validation_alias=name, validate_default=True, repr=shown)


def text(check: Callable[[str], Any]) -> PlainValidator:
    """Return a validator that parses a string with `check`; other values, given in code, are taken as they are."""
    return PlainValidator(lambda value: check(value) if isinstance(value, str) else value)


def computed(make: Callable[[Mapping[str, Any]], Any], read: Callable[[str], Any] | None = None) -> PlainValidator:
    """Return a validator for a field that is computed from the fields before it, unless it is given.

    make: computes the value from the fields before it.
    read: parses the field's variable; `None` when there is no variable.
    """

    def check(value: Any, info: pydantic.ValidationInfo) -> Any:
        if value is not None:
            return read(value) if read is not None and isinstance(value, str) else value
        try:
            return make(info.data)
        except KeyError:
            # A field before it is wrong, and reported.
            raise PydanticCustomError(_FOLLOWS, "not computed") from None

    return PlainValidator(check)


COMPUTED: Any = Field(default=None, validate_default=True)
# Like `COMPUTED`, and not printed.
HIDDEN: Any = Field(default=None, validate_default=True, repr=False)


def parse_choice(value: str, *choices: str) -> str:
    for word in choices:
        if value.lower() == word.lower():
            return word
    raise wrong(f"is not one of {', '.join(choices)}")


def choice(*choices: str) -> PlainValidator:
    """Return a validator for one of these words, in upper or lower case."""
    return text(lambda value: parse_choice(value, *choices))


def digits(value: str) -> str:
    """Return the value if it may be passed to `int` and `float`.

    Raises `ValueError` for digits of other scripts and underscores between digits, which both functions accept.
    """
    if not value.isascii() or "_" in value:
        raise ValueError(value)
    return value


def integer(low: int = 0, high: int = 2**31 - 1, *, unit: float = 1) -> PlainValidator:
    """Return a validator for a whole number from `low` to `high`, which it multiplies by `unit`."""

    def check(value: str) -> float:
        try:
            found = int(digits(value))
        except ValueError:
            found = low - 1
        if not low <= found <= high:
            raise wrong(f"is not a whole number from {low} to {high}")
        return found * unit

    return text(check)


def parse_number(value: str, low: float = 0.0, high: float = 1e9) -> float:
    try:
        found = float(digits(value))
    except ValueError:
        found = low - 1
    if not low <= found <= high:
        raise wrong(f"is not a number from {low} to {high}")
    return found


def number(low: float = 0.0, high: float = 1e9, *, unit: float = 1) -> PlainValidator:
    """Return a validator for a number from `low` to `high`, which it multiplies by `unit`."""
    return text(lambda value: parse_number(value, low, high) * unit)


def parse_flag(value: str) -> bool:
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() not in ("0", "false", "no", "off"):
        raise wrong("is not a yes or no (use 1 or 0)")
    return False


def parse_address(value: str) -> tuple[str, int]:
    """Parse `host:port`."""
    host, _, port = value.rpartition(":")
    host = host.strip("[]")
    if not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65535 or not host_names.is_host(host):
        raise wrong("is not host:port")
    return host, int(port)


def parse_host(value: str) -> str:
    """Parse a host name, also with a final dot, or an IP address; returns an IPv6 address without brackets."""
    host = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if not host_names.is_address(host) and not host_names.is_name(host.removesuffix(".")):
        raise wrong("is not a host name or an IP address (without a port)")
    return host


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a listener on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_path(value: str) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise wrong("begins with the home directory of an unknown user") from None


def parse_milliseconds(value: str) -> tuple[float, float]:
    """Parse `80..150` or `100`, in milliseconds; returns the least and the most in seconds."""
    low, _, high = value.partition("..")
    try:
        least, most = float(digits(low)) / 1000, float(digits(high or low)) / 1000
    except ValueError:
        least = most = -1.0
    if not 0.0 <= least <= most < float("inf"):
        raise wrong("is not milliseconds like 100 or 80..150")
    return least, most


Flag = Annotated[bool, text(parse_flag)]
Address = Annotated[tuple[str, int], text(parse_address)]
Host = Annotated[str, text(parse_host)]


def printable(settings: Variables) -> dict[str, str]:
    """Return the fields of a settings object for the log at start, without those that are excluded from its repr.

    Secrets show as `Secrets(…)`.
    """
    fields = type(settings).model_fields
    return {name: repr(getattr(settings, name)) for name, field in fields.items() if field.repr}
