"""Secrets that an installation makes for itself: a file for each process, with those alone that it needs.

    secrets/webapp.json    jwt_key, link_key, settings_key
    secrets/coreapp.json   link_key, registration_key, master_key, settings_key, webhook_secret
    secrets/network.json   registration_key
    secrets/handset.json   registration_key, handset_key

All are made together, so that what several processes need is the same in each; what may have to be derived from a
master key that only its owner is given is empty until its owner comes. A file is on disk under its name, whole, before
anything that it protects can be.
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

from tidings.runtime import private_files

OWNERS: Mapping[str, tuple[str, ...]] = {
    "webapp": ("jwt_key", "link_key", "settings_key"),
    "coreapp": ("link_key", "registration_key", "master_key", "settings_key", "webhook_secret"),
    "network": ("registration_key",),
    "handset": ("registration_key", "handset_key"),
}
# What the one file had that all processes of earlier releases read.
_LEGACY = ("jwt_key", "link_key", "registration_key", "master_key", "webhook_secret")
# Once derived from the master key, which may be in the environment of those alone that have these: nobody else makes
# them without one. They are empty until then.
_DERIVED = ("settings_key", "handset_key")
_KEY_LENGTH = 32


class UnusableFile(ValueError):
    """A file of secrets that is no such file, or lacks some; the text names it."""


def derive(master_key: bytes) -> bytes:
    """The key under which earlier releases sealed settings and handsets' stores: now a secret of its own."""
    info = b"Tidings data key v1" + b"\x01\x00\x00\x00\x01"
    return HKDF(hashes.SHA256(), _KEY_LENGTH, salt=bytes(_KEY_LENGTH), info=info).derive(master_key)


class ChangedMeanwhile(Exception):
    """Somebody else has changed a secret since it was read."""


class SecretFiles:
    """The files of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._legacy = data_dir / "secrets.json"
        self.directory = data_dir / "secrets"

    def path(self, process: str) -> Path:
        return self.directory / f"{process}.json"

    def exist(self, process: str) -> bool:
        """Have secrets been made here before?"""
        return self.path(process).exists() or self._legacy.exists()

    def load(self, process: str, master_key: str = "") -> Mapping[str, str]:
        """The secrets of one process, made if they are not there, on disk when this returns.

        master_key: the one in the environment, hexadecimal; empty for none. Raises `UnusableFile` and `OSError`.
        """
        # Read before writing: what is there serves on a full or read-only disk, too.
        found = None if self._legacy.exists() else self._read(process)
        if found is not None and not any(found.get(field) == "" for field in _DERIVED):
            return found
        legacy = self._read_legacy()
        try:
            private_files.make_directory(self.directory)
            with self._alone():
                # Another process may have made them meanwhile.
                self._make(process, master_key)
        except OSError:
            if legacy is None:
                raise
            return _complete(legacy, master_key)
        made = self._read(process)
        assert made is not None
        return made

    def replace(self, field: str, value: str, *, present: str) -> list[Path]:
        """Put another value in the place of a secret in every file that has it; the files, the Coreapp's first.

        present: its value there, as it was read. Raises `ChangedMeanwhile` when it is another one by now.
        """
        changed: list[Path] = []
        with self._alone():
            if (self._read("coreapp") or {}).get(field, "").split() != present.split():
                raise ChangedMeanwhile(f"{self.path('coreapp')}: {field} was changed meanwhile")
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
            # Everything of it is in the files that need it, and those are on disk.
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
        """One process at a time makes or changes files."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _complete(legacy: Mapping[str, str], master_key: str) -> dict[str, str]:
    """The secrets of an earlier release, and what it derived from its master key; nothing if there are none."""
    known = dict(legacy)
    master = master_key or legacy.get("master_key", "")
    with contextlib.suppress(ValueError):
        if master:
            # A master key that is none is reported where it is read. Of several the last is the one that was first.
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
