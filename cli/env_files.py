"""Files of environment variables, in the form that systemd's `EnvironmentFile=` reads."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cli import guard

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read(path: Path) -> dict[str, str]:
    """Return the variables of a file with lines of NAME=VALUE.

    Values are quoted as in a shell, and lines that start with `#` or `;` are comments. A leading `-` in the path
    allows the file to be absent, as in a systemd unit. Raises `CommandFailure`.
    """
    optional = str(path).startswith("-")
    path = Path(str(path)[1:]) if optional else path
    try:
        text = path.read_text()
    except FileNotFoundError:
        if optional:
            return {}
        raise guard.CommandFailure(f"--env-file {path}: No such file or directory") from None
    except (OSError, UnicodeDecodeError) as error:
        raise guard.CommandFailure(f"--env-file {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    return dict(
        _variable(line, f"--env-file {path}, line {number}")
        for number, line in enumerate(text.replace("\\\n", "").splitlines(), 1)
        if line.strip() and line.strip()[0] not in "#;"
    )


def _variable(line: str, where: str) -> tuple[str, str]:
    name, separator, raw = line.strip().partition("=")
    if not separator or not _NAME.fullmatch(name):
        raise guard.CommandFailure(f"{where}: not NAME=VALUE")
    value = raw.strip()
    if value[:1] in ("'", '"'):
        try:
            words = shlex.split(value)
        except ValueError:
            raise guard.CommandFailure(f"{where}: {name} has no closing quotation mark") from None
        value = " ".join(words)
    return name, value
