"""Secrets that an installation generates: one file per process, with only the secrets that it needs.

    secrets/webapp.json    jwt_key, link_key, settings_key
    secrets/coreapp.json   link_key, registration_key, master_key, settings_key, webhook_secret
    secrets/network.json   registration_key
    secrets/handset.json   registration_key, handset_key

All files are made together, so that a secret shared by several processes is the same in each. A secret that may have
to be derived from a master key stays empty until a process that has the master key starts. A file is complete and on
disk before anything that it protects can be.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tidings.secrets import private_files

OWNERS: Mapping[str, tuple[str, ...]] = {
    "webapp": ("jwt_key", "link_key", "settings_key"),
    "coreapp": ("link_key", "registration_key", "master_key", "settings_key", "webhook_secret"),
    "network": ("registration_key",),
    "handset": ("registration_key", "handset_key"),
}
# Fields of the single file that all processes of earlier releases read.
_LEGACY = ("jwt_key", "link_key", "registration_key", "master_key", "webhook_secret")
# Earlier releases derived these from the master key, which may be in the environment of their owners only. A process
# without the master key does not generate them for others, and leaves them empty.
_DERIVED = ("settings_key", "handset_key")
_KEY_LENGTH = 32


class UnusableFile(ValueError):
    """The file is not a file of secrets, or lacks some; the text names it."""


def derive(master_key: bytes) -> bytes:
    """Return the key with which earlier releases encrypted settings and handsets' stores; now a separate secret."""
    info = b"Tidings data key v1" + b"\x01\x00\x00\x00\x01"
    return HKDF(hashes.SHA256(), _KEY_LENGTH, salt=bytes(_KEY_LENGTH), info=info).derive(master_key)


class ConcurrentChange(Exception):
    """Another process has changed the secret since it was read."""


class SecretFiles:
    """The files of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._legacy = data_dir / "secrets.json"
        self.directory = data_dir / "secrets"

    def path(self, process: str) -> Path:
        return self.directory / f"{process}.json"

    def exist(self, process: str) -> bool:
        """Return whether secrets were made here before."""
        return self.path(process).exists() or self._legacy.exists()

    def load(self, process: str, master_key: str = "") -> Mapping[str, str]:
        """Return the secrets of one process, made if they are missing; they are on disk when this returns.

        Raises `UnusableFile` and `OSError`.

        master_key: value from the environment, hexadecimal; empty for none.
        """
        # Read before writing: existing secrets work on a full or read-only disk, too.
        found = None if self._legacy.exists() else self._read(process)
        if found is not None and not any(found.get(field) == "" for field in _DERIVED):
            return found
        legacy = self._read_legacy()
        try:
            private_files.make_directory(self.directory)
            with self._alone():
                # Another process may have made them since.
                self._make(process, master_key)
        except OSError:
            if legacy is None:
                raise
            return _complete(legacy, master_key)
        made = self._read(process)
        assert made is not None
        return made

    def replace(self, field: str, value: str, *, present: str) -> list[Path]:
        """Replace a secret in every file that has it. Returns these files, the Coreapp's first.

        Raises `ConcurrentChange` when the present value is another one.

        present: the present value, as it was read.
        """
        changed: list[Path] = []
        with self._alone():
            if (self._read("coreapp") or {}).get(field, "").split() != present.split():
                raise ConcurrentChange(f"{self.path('coreapp')}: {field} was changed meanwhile")
            for process in sorted(OWNERS, key=lambda name: name != "coreapp"):
                found = self._read(process)
                if found is not None and field in found:
                    self._write(process, {**found, field: value})
                    changed.append(self.path(process))
        return changed

    def _make(self, process: str, master_key: str) -> None:
        present = {name: self._read(name) for name in OWNERS}
        legacy = self._read_legacy() or {}
        kept = {field: value for found in present.values() for field, value in (found or {}).items() if value}
        known = _complete(legacy | kept, master_key) | kept
        made = set(known if master_key else kept) | set(OWNERS[process])
        for name, fields in OWNERS.items():
            before = present[name]
            content = dict(before if before is not None else dict.fromkeys(fields, ""))
            for field, value in content.items():
                if not value and (field in made if field in _DERIVED else before is None):
                    content[field] = known.setdefault(field, _generate(field))
            if content != before:
                self._write(name, content)
        private_files.sync_directory(self._data_dir)
        if legacy:
            # All of it is in the files that need it, and those are on disk.
            self._legacy.unlink(missing_ok=True)
            private_files.sync_directory(self._data_dir)

    def _read(self, process: str) -> dict[str, str] | None:
        return _parse(self.path(process))

    def _read_legacy(self) -> dict[str, str] | None:
        found = _parse(self._legacy)
        lost = [field for field in _LEGACY if found is not None and not found.get(field)]
        if lost:
            raise UnusableFile(f"{self._legacy}: has no {', '.join(lost)}")
        return found

    def _write(self, process: str, content: Mapping[str, str]) -> None:
        private_files.replace(self.path(process), json.dumps(content, indent=1).encode())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the files against other processes that make or change them."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _complete(legacy: Mapping[str, str], master_key: str) -> dict[str, str]:
    """Return the secrets of an earlier release and those that it derived from its master key; empty if none exist."""
    known = dict(legacy)
    master = master_key or legacy.get("master_key", "")
    with contextlib.suppress(ValueError):
        if master:
            # An invalid master key is reported where it is read. Of several, the last is the oldest.
            known["settings_key"] = known["handset_key"] = derive(bytes.fromhex(master.split()[-1])).hex()
    return known


def _parse(path: Path) -> dict[str, str] | None:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise UnusableFile(f"{path}: not a file of secrets") from None
    if not isinstance(found, dict):
        raise UnusableFile(f"{path}: not a file of secrets")
    return {str(field): str(value) for field, value in found.items()}


def _generate(field: str) -> str:
    if field == "webhook_secret":
        return "whsec_" + base64.b64encode(secrets.token_bytes(_KEY_LENGTH)).decode()
    return secrets.token_hex(_KEY_LENGTH)
