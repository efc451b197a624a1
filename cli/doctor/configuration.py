"""Checks of each process's environment variables, secrets and file permissions."""

from __future__ import annotations

import base64
import dataclasses
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import known_variables, process_records, unread_variables
from cli.doctor.findings import Finding, error, fine, warning
from cli.process_settings import KINDS
from cli.settings import DirectorySettings
from tidings import __version__
from tidings.installation.process_records import ProcessRecord
from tidings.secrets import api_key, process_secrets, secret_sources
from tidings.secrets.process_secrets import CoreappSecrets, NetworkSecrets, SecretKeys, WebappSecrets
from tidings.secrets.secret_files import OWNERS, SecretFiles

# Secrets that `tidings up` generates for the processes that it starts.
_GENERATED = (api_key.CONSOLE_VARIABLE, api_key.LINK_VARIABLE)

# Stand-ins for missing secrets, so that the other settings can be validated. Nothing is decrypted with them.
_ABSENT = SecretKeys.of(bytes(process_secrets.KEY_LENGTH))
_STAND_INS: Mapping[str, Any] = {
    "webapp": WebappSecrets(jwt_key="absent" * 6, link_key="", settings_key=_ABSENT),
    "coreapp": CoreappSecrets(
        link_key="",
        registration_key="",
        master_key=_ABSENT,
        settings_key=_ABSENT,
        webhook_secret="whsec_" + base64.b64encode(bytes(32)).decode(),
    ),
    "network": NetworkSecrets(registration_key=""),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ExaminedSettings:
    """Settings of one process as it would read them."""

    process: str
    settings: Any  # None if any setting is wrong
    has_secrets: bool  # all secrets were found
    mistakes: Sequence[str]  # error texts of wrong settings


def examine(process: str, variables: Mapping[str, str]) -> ExaminedSettings:
    """Read the settings of a process without creating a directory or a secret."""
    kind = KINDS[process]
    data_dir = DirectorySettings.read(variables).data_dir
    has_secrets = has_all_secrets(process, variables, data_dir)
    given: dict[str, Any] = {"data_dir": data_dir}
    if not has_secrets:
        given["secrets"] = _STAND_INS[process]
    # Reading the data directory from its variable would create it.
    others = {name: value for name, value in variables.items() if name != "TIDINGS_DATA_DIR"}
    mistakes = kind.mistakes(others, **given)
    return ExaminedSettings(process, None if mistakes else kind.read(others, **given), has_secrets, mistakes)


def has_all_secrets(process: str, variables: Mapping[str, str], data_dir: Path) -> bool:
    """Return whether the process would find all its secrets without creating any."""
    return SecretFiles(data_dir).path(process).exists() or not _not_given(process, variables)


def _not_given(process: str, variables: Mapping[str, str]) -> Sequence[str]:
    names = [process_secrets.VARIABLES[field] for field in OWNERS[process]]
    endings = ("", secret_sources.FILE, secret_sources.COMMAND)
    return [name for name in names if not any(variables.get(name + ending) for ending in endings)]


class ConfigurationCheck:
    """Check of the variables of all examined processes; each wrong variable is reported once."""

    name = "configuration"

    def __init__(self, examined: Sequence[ExaminedSettings]) -> None:
        self._examined = examined

    async def run(self) -> Sequence[Finding]:
        wrong = dict.fromkeys(mistake for each in self._examined for mistake in each.mistakes)
        if wrong:
            return [
                error(self.name, mistake, "correct the variable; docs/configuration.md lists all of them")
                for mistake in wrong
            ]
        names = ", ".join(dict.fromkeys(each.process for each in self._examined))
        return [fine(self.name, f"every variable of {names} is valid")]


class UnreadVariablesCheck:
    """Check for variables with a prefix of Tidings that nothing reads."""

    name = "environment"

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    async def run(self) -> Sequence[Finding]:
        remedy = "correct or unset the variable; docs/configuration.md lists all of them"
        found = [warning(self.name, str(variable), remedy) for variable in unread_variables.find(self._variables)]
        return found or [fine(self.name, "every TIDINGS_… and WA_… variable is one that Tidings reads")]


class RunningProcessCheck:
    """Comparison of a running process's variables and version with those of this command."""

    def __init__(self, record: ProcessRecord, variables: Mapping[str, str]) -> None:
        self.name = f"running {record.process}"
        self._record = record
        self._variables = variables

    async def run(self) -> Sequence[Finding]:
        record = self._record
        found = []
        if record.version != __version__:
            text = f"process {record.pid} is version {record.version}, this command is version {__version__}"
            found.append(warning(self.name, text, "restart the process, or run its version of this command"))
        missing = [name for name in record.withheld if name not in _GENERATED and not self._variables.get(name)]
        if missing:
            text = f"process {record.pid} was started with {', '.join(missing)}, which is not set here"
            found.append(warning(self.name, text, "run this command with the same secrets; other checks may fail"))
        for name in sorted(known_variables.SETTINGS & self._variables.keys() - set(record.withheld)):
            here, there = self._variables[name], record.variables.get(name)
            if here and _differ(name, here, there or "") and not process_records.is_secret(name):
                shown = "without it" if there is None else f"with {there!r}"
                text = f"{name} is {here!r} here; process {record.pid} was started {shown}"
                found.append(warning(self.name, text, "restart the process if it should have this value"))
        return found or [fine(self.name, f"process {record.pid}: checked with the variables it was started with")]


def _differ(name: str, here: str, there: str) -> bool:
    """Return whether two values of a setting differ. A directory may be written in several ways."""
    if name.endswith("_DIR") and here and there:
        return Path(here).resolve() != Path(there).resolve()
    return here != there


class SecretsCheck:
    """Check that the secrets of one process exist and that only their owner can read the files."""

    def __init__(self, process: str, variables: Mapping[str, str], data_dir: Path) -> None:
        self.name = f"secrets of {process}"
        self._process = process
        self._variables = variables
        self._data_dir = data_dir

    async def run(self) -> Sequence[Finding]:
        path = SecretFiles(self._data_dir).path(self._process)
        missing = _not_given(self._process, self._variables)
        if missing and not path.exists():
            remedy = (
                f"the first start creates them in {path.parent}; on several machines, give every process the same ones"
            )
            return [warning(self.name, f"{', '.join(missing)}: neither set nor created yet", remedy)]
        loose = _loose([*([path] if path.exists() else []), *self._files_given()])
        return loose_findings(self.name, loose) or [fine(self.name, "present, and readable by their owner only")]

    def _files_given(self) -> Sequence[Path]:
        names = [process_secrets.VARIABLES[field] + secret_sources.FILE for field in OWNERS[self._process]]
        return [Path(self._variables[name]) for name in names if self._variables.get(name)]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class PrivateFilesCheck:
    """Check of the permissions of the data directory, its databases and private keys."""

    name = "files"

    data_dir: Path
    keys: Sequence[str]  # paths of private keys
    _: dataclasses.KW_ONLY
    has_databases: bool = True  # the directory contains SQLite files

    async def run(self) -> Sequence[Finding]:
        if not self.data_dir.is_dir():
            remedy = "start a process once, which creates it, or set TIDINGS_DATA_DIR"
            return [warning(self.name, f"the data directory {self.data_dir} does not exist", remedy)]
        # Containers get their secrets in a read-only volume.
        is_fixed = not self.has_databases and bool(os.statvfs(self.data_dir).f_flag & os.ST_RDONLY)
        if not os.access(self.data_dir, os.R_OK | os.X_OK | (0 if is_fixed else os.W_OK)):
            remedy = "run this, and Tidings, as the user who owns it, on a disk that can be written"
            return [error(self.name, f"the data directory {self.data_dir} cannot be written", remedy)]
        kept = [self.data_dir, *(path for path in self.data_dir.iterdir() if path.name.endswith(".db"))]
        loose = _loose([*kept, *map(Path, self.keys)])
        return loose_findings(self.name, loose) or [fine(self.name, f"{self.data_dir} is readable by its owner only")]


def loose_findings(check: str, loose: Sequence[str]) -> list[Finding]:
    """Return an error for each file that other users may read.

    loose: paths with their modes, as text.
    """
    return [error(check, f"{text}: users other than its owner may read it", "chmod go= on it") for text in loose]


def _loose(paths: Sequence[Path]) -> Sequence[str]:
    found = []
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            # The check that needs the file reports that it is missing.
            continue
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            found.append(f"{path} has mode {mode:04o}")
    return found
