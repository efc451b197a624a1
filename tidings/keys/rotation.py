"""Rotation of a key while the processes of the installation run.

1. The new key is placed before the old one wherever the processes read keys. Both open, the new one seals.
2. The database records the new key as the current one.
3. Everything sealed under the old key is sealed under the new one, row by row.
4. The old key is dropped once no work started under it can still be written.

After a crash the rotation is started again: each step is found done or is repeated.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from tidings.aio import crashpoints
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.e2ee.master_keys import MasterKeys, key_id
from tidings.keys import wrapping
from tidings.secrets.process_secrets import KEY_LENGTH, SecretKeys
from tidings.secrets.secret_files import ConcurrentChange, SecretFiles
from tidings.storage.business import key_checks, sealed_rows
from tidings.storage.business.key_checks import KeyCheck
from tidings.storage.database import Database

# Time after which work started under the old key is written or fenced off, seconds.
SETTLING = 60.0


class CannotRotate(Exception):
    """Rotation that is not possible; the text states the reason for the user."""


@dataclasses.dataclass(frozen=True, slots=True)
class KeyState:
    """State of one kind of key."""

    name: str
    source: str
    # Ids of the keys that this process has; the first one seals.
    ids: Sequence[str]
    # Key recorded in the database; None if no key is recorded yet.
    check: KeyCheck | None
    # Number of rows sealed under another key than the first.
    left: int


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Rotation:
    """Rotation of one kind of key."""

    name: str  # kind of key, a name of `key_checks`
    database: Database
    files: SecretFiles
    _: dataclasses.KW_ONLY
    keys: SecretKeys
    print_line: Callable[[str], None]  # receives each line of progress
    now: Callable[[], float] = time.time  # clock, Unix seconds

    async def state(self) -> KeyState:
        keys = self.keys.read()
        left = 0
        async with self.database.reading() as connection:
            check = await key_checks.find(connection, self.name)
            if self.name == key_checks.MASTER:
                masters = MasterKeys(keys)
                wrapped = await sealed_rows.list_data_keys(connection)
                left = sum(not masters.needs_current(found.wrapped) for found in wrapped)
            else:
                safe = SecretSealer(*keys)
                rows = await sealed_rows.list_settings(connection)
                left = sum(not wrapping.is_current(safe, row) for row in rows)
        return KeyState(self.name, self.keys.source, [key_id(key) for key in keys], check, left)

    async def rotate(self) -> int:
        """Do steps 1 to 3: create the new key, and seal everything under it.

        Returns the number of rows sealed again. Raises `CannotRotate`.
        """
        check = await self._check()
        keys = self.keys.read()
        if not check.previous:
            keys = self._make(keys) if key_id(keys[0]) == check.key_id else self._spread(keys)
        crashpoints.reach(crashpoints.AFTER_NEW_KEY_BEFORE_USE)
        if not check.previous:
            known = [key_id(key) for key in keys]
            if check.key_id not in known:
                raise CannotRotate(f"{self.keys.source}: the present key, {check.key_id}, must follow the new one")
            await self._keep(KeyCheck(self.name, known[0], check.key_id, int(self.now() * 1000)))
            self.print_line(f"{self.name} key: {known[0]} is current, {check.key_id} still opens")
        return await self._seal(keys)

    async def drop(self) -> None:
        """Do step 4: drop the old key. Raises `CannotRotate`."""
        check = await self._check()
        if not check.previous:
            raise CannotRotate(f"{self.name} key: there is no old one; `tidings keys rotate` creates a new one")
        wait = check.changed_at / 1000 + SETTLING - self.now()
        if wait > 0:
            raise CannotRotate(f"{self.name} key: the old one may still be in use; try again in {wait:.0f} s")
        await self._seal(self.keys.read())
        state = await self.state()
        if state.left:
            raise CannotRotate(f"{self.name} key: rows that are still under another key: {state.left}; set them again")
        current = next(key for key in self.keys.read() if key_id(key) == check.key_id)
        if self._is_ours():
            self._replace(self.keys.read(), (current,))
        await self._keep(KeyCheck(self.name, check.key_id, "", check.changed_at))
        where = "" if self._is_ours() else f"; remove it from {self.keys.source}"
        if self._is_handed():
            where = f"; remove it by `tidings provision` with TIDINGS_DROP_KEYS={check.previous}"
        self.print_line(f"{self.name} key: {check.previous} is no longer needed{where}")

    def _is_kept(self) -> bool:
        return self.keys.source.startswith(str(self.files.directory))

    def _is_ours(self) -> bool:
        """Return whether the key is kept in files that we can write."""
        return self._is_kept() and os.access(self.files.directory, os.W_OK)

    def _is_handed(self) -> bool:
        """Return whether the key is in a file that others write, as in a container."""
        return self._is_kept() and not self._is_ours()

    def _make(self, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if self._is_handed():
            raise CannotRotate(
                f"{self.keys.source} has no new {self.name} key, and cannot be written: have `tidings provision` "
                f"make one, with TIDINGS_NEW_KEYS={self.name}"
            )
        if not self._is_ours():
            raise CannotRotate(
                f"{self.keys.source} has no new {self.name} key: put one before the current one, separated by a space"
            )
        fresh = secrets.token_bytes(KEY_LENGTH), keys[0]
        self._replace(keys, fresh)
        return fresh

    def _spread(self, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Write the present keys again: a rotation may have been killed before every process had the new key."""
        if self._is_ours():
            self._replace(keys, keys)
        return keys

    def _replace(self, present: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Replace the keys in our own files, unless another rotation has changed them, whose key would be lost."""
        try:
            self.files.replace(f"{self.name}_key", _text(keys), present=_text(present))
        except ConcurrentChange as error:
            raise CannotRotate(f"{error}: is another `tidings keys` running?") from None

    async def _seal(self, keys: Sequence[bytes]) -> int:
        if self.name == key_checks.MASTER:
            count = await wrapping.wrap_data_keys(self.database, MasterKeys(keys), self._progress)
        else:
            count = await wrapping.seal_settings(self.database, SecretSealer(*keys), self._progress)
        return count

    def _progress(self, done: int, total: int) -> None:
        self.print_line(f"{self.name} key: {done} of {total} rows")

    async def _check(self) -> KeyCheck:
        async with self.database.reading() as connection:
            check = await key_checks.find(connection, self.name)
        if check is None:
            raise CannotRotate(f"{self.name} key: the database records none yet; start the processes once")
        return check

    async def _keep(self, check: KeyCheck) -> None:
        work: Callable[..., Awaitable[None]] = lambda connection: key_checks.replace(connection, check)  # noqa: E731
        await self.database.persist(work, retry_seconds=30.0, about="keys")


def _text(keys: Sequence[bytes]) -> str:
    return " ".join(key.hex() for key in keys)
