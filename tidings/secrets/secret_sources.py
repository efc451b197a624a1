"""Sources of a secret that an operator gives: its variable, a file that a variable names, or a command's output."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tidings.config import env

LIMIT = 16_384  # bytes of a file or an output
COMMAND_SECONDS = 10.0
FILE, COMMAND = "_FILE", "_COMMAND"
# Prefixes of variables that a command does not get, as our own secrets are among them.
OURS = ("TIDINGS_", "WA_")


class SecretUnavailable(ValueError):
    """A secret could not be read; the text names its variable and never its value."""


@dataclasses.dataclass(frozen=True, slots=True)
class SecretSource:
    """A variable that was set. A file or a command can be read again, and may then give another value."""

    name: str
    value: str = dataclasses.field(repr=False)
    # Environment of the command.
    environment: Mapping[str, str] = dataclasses.field(repr=False, default_factory=dict)

    def read(self) -> str:
        """Return the secret without surrounding white space; waits for a command. Raises `SecretUnavailable`."""
        if self.name.endswith(FILE):
            found = self._read_file()
        elif self.name.endswith(COMMAND):
            found = self._run()
        else:
            return self.value
        if len(found) > LIMIT:
            raise SecretUnavailable(f"{self.name}: more than {LIMIT} bytes")
        try:
            text = found.decode().strip()
        except UnicodeDecodeError:
            raise SecretUnavailable(f"{self.name}: is not text") from None
        if not text:
            raise SecretUnavailable(f"{self.name}: is empty")
        return text

    def _read_file(self) -> bytes:
        try:
            with Path(self.value).open("rb") as file:
                return file.read(LIMIT + 1)
        except OSError as error:
            raise SecretUnavailable(f"{self.name}: {error.strerror}") from None

    def _run(self) -> bytes:
        """Run the command without a shell. Returns at most `LIMIT` + 1 bytes of its output, within 10 seconds."""
        try:
            running = subprocess.Popen(  # noqa: S603
                shlex.split(self.value),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(self.environment),
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as error:
            raise SecretUnavailable(f"{self.name}: {getattr(error, 'strerror', None) or 'is not a command'}") from None
        try:
            assert running.stdout is not None
            deadline = time.monotonic() + COMMAND_SECONDS
            found = _read_until(running.stdout.fileno(), deadline)
            if len(found) <= LIMIT and running.wait(max(0.0, deadline - time.monotonic())):
                raise SecretUnavailable(f"{self.name}: ended with status {running.returncode}")
            return found
        except (TimeoutError, subprocess.TimeoutExpired):
            raise SecretUnavailable(f"{self.name}: no response within {COMMAND_SECONDS:g} s") from None
        finally:
            # With all processes that it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()


def find(variables: Mapping[str, str], name: str, *, command: bool = False) -> SecretSource | None:
    """Return the source of a secret: the variable `name`, `name` + `_FILE`, or `name` + `_COMMAND`; `None` if unset.

    Raises `SecretUnavailable` when several are set.

    command: allow `_COMMAND`.
    """
    names = [name, name + FILE, *([name + COMMAND] if command else [])]
    given = [found for found in names if variables.get(found)]
    if len(given) > 1:
        raise SecretUnavailable(f"{' and '.join(given)} are both set")
    if not given:
        return None
    environment = {key: value for key, value in variables.items() if not key.startswith(OURS)}
    return SecretSource(given[0], variables[given[0]], environment)


def read(variables: Mapping[str, str], name: str) -> str:
    """Return an optional secret from its variable or file; empty when unset.

    Raises `SecretUnavailable`.
    """
    found = find(variables, name)
    return found.read() if found is not None else ""


def given(variables: Mapping[str, str], name: str) -> str:
    """Return the result of `read` for a settings field. Raises `env.mistake`."""
    try:
        return read(variables, name)
    except SecretUnavailable as error:
        raise env.mistake(str(error)) from None


def _read_until(descriptor: int, deadline: float) -> bytes:
    """Read until the end, or until the limit is exceeded. Raises `TimeoutError`."""
    found = b""
    while len(found) <= LIMIT:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        chunk = os.read(descriptor, LIMIT + 1 - len(found))
        if not chunk:
            break
        found += chunk
    return found
