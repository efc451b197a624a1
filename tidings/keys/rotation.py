"""A new key in the place of the old one, while the processes of the installation run.

1. The new key stands before the old one wherever the processes read keys: both open, the new one seals.
2. It is noted in the database as the current one.
3. Everything that is sealed under the old one is sealed under the new one, row by row.
4. The old one is dropped, once nothing that was begun under it can still be written.

Whoever is killed between two steps starts again: each is found done, or is done again.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from tidings.e2ee.installation_secrets import SecretSealer
from tidings.e2ee.master_keys import MasterKeys, key_id
from tidings.keys import wrapping
from tidings.runtime import crashpoints
from tidings.runtime.process_secrets import KEY_LENGTH, SecretKeys
from tidings.runtime.secret_files import ChangedMeanwhile, SecretFiles
from tidings.storage.business import key_checks, sealed_rows
from tidings.storage.business.key_checks import KeyCheck
from tidings.storage.database import Database

# Seconds in which whatever was begun under the old key is written or fenced off.
SETTLING = 60.0


class CannotRotate(Exception):
    """What stands in the way, for the person who asked."""


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """ids: of the keys that are known here, the first seals; check: what the database knows; left: rows that are sealed
    under another than the first."""

    name: str
    source: str
    ids: Sequence[str]
    check: KeyCheck | None
    left: int


class Rotation:
    """One kind of key. `say` is given a line of progress."""

    def __init__(
        self,
        name: str,
        database: Database,
        files: SecretFiles,
        *,
        keys: SecretKeys,
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """name: as of `key_checks`; now: Unix seconds."""
        self._name = name
        self._database = database
        self._files = files
        self._keys = keys
        self._say = say
        self._now = now

    async def state(self) -> State:
        keys = self._keys.read()
        left = 0
        async with self._database.reading() as connection:
            check = await key_checks.find(connection, self._name)
            if self._name == key_checks.MASTER:
                masters = MasterKeys(keys)
                wrapped = await sealed_rows.list_data_keys(connection)
                left = sum(not masters.needs_current(found.wrapped) for found in wrapped)
            else:
                safe = SecretSealer(*keys)
                rows = await sealed_rows.list_settings(connection)
                left = sum(not wrapping.is_current(safe, row) for row in rows)
        return State(self._name, self._keys.source, [key_id(key) for key in keys], check, left)

    async def rotate(self) -> int:
        """Steps 1 to 3; how many rows were sealed again. Raises `CannotRotate`."""
        check = await self._check()
        keys = self._keys.read()
        if not check.previous:
            keys = self._make(keys) if key_id(keys[0]) == check.key_id else self._spread(keys)
        crashpoints.reach(crashpoints.AFTER_NEW_KEY_BEFORE_USE)
        if not check.previous:
            known = [key_id(key) for key in keys]
            if check.key_id not in known:
                raise CannotRotate(
                    f"{self._keys.source}: the present key, {check.key_id}, must stand behind the new one"
                )
            await self._keep(KeyCheck(self._name, known[0], check.key_id, int(self._now() * 1000)))
            self._say(f"{self._name} key: {known[0]} is current, {check.key_id} still opens")
        return await self._seal(keys)

    async def drop(self) -> None:
        """Step 4. Raises `CannotRotate`."""
        check = await self._check()
        if not check.previous:
            raise CannotRotate(f"{self._name} key: there is no old one; `tidings keys rotate` brings a new one")
        wait = check.changed_at / 1000 + SETTLING - self._now()
        if wait > 0:
            raise CannotRotate(f"{self._name} key: the old one may still be in use; try again in {wait:.0f} s")
        await self._seal(self._keys.read())
        state = await self.state()
        if state.left:
            raise CannotRotate(f"{self._name} key: {state.left} rows are under another still: set them again")
        current = next(key for key in self._keys.read() if key_id(key) == check.key_id)
        if self._is_ours():
            self._replace(self._keys.read(), (current,))
        await self._keep(KeyCheck(self._name, check.key_id, "", check.changed_at))
        where = "" if self._is_ours() else f"; it may go from {self._keys.source}"
        if self._is_handed():
            where = f"; have `tidings provision` take it away: TIDINGS_DROP_KEYS={check.previous}"
        self._say(f"{self._name} key: {check.previous} is needed no more{where}")

    def _is_kept(self) -> bool:
        return self._keys.source.startswith(str(self._files.directory))

    def _is_ours(self) -> bool:
        """Is it kept in our own files?"""
        return self._is_kept() and os.access(self._files.directory, os.W_OK)

    def _is_handed(self) -> bool:
        """Is it in a file that others make, as in a container?"""
        return self._is_kept() and not self._is_ours()

    def _make(self, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if self._is_handed():
            raise CannotRotate(
                f"{self._keys.source} has no new {self._name} key, and cannot be written: have `tidings provision` "
                f"make one, with TIDINGS_NEW_KEYS={self._name}"
            )
        if not self._is_ours():
            raise CannotRotate(
                f"{self._keys.source} has no new {self._name} key: put one before the present one, and a space between"
            )
        fresh = secrets.token_bytes(KEY_LENGTH), keys[0]
        self._replace(keys, fresh)
        return fresh

    def _spread(self, keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Whoever made the new one may have been killed before every process had it."""
        if self._is_ours():
            self._replace(keys, keys)
        return keys

    def _replace(self, present: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Keys in our own files. Another rotation that runs would be left with a key that nobody keeps."""
        try:
            self._files.replace(f"{self._name}_key", _text(keys), present=_text(present))
        except ChangedMeanwhile as error:
            raise CannotRotate(f"{error}: is another `tidings keys` running?") from None

    async def _seal(self, keys: Sequence[bytes]) -> int:
        if self._name == key_checks.MASTER:
            count = await wrapping.wrap_data_keys(self._database, MasterKeys(keys), self._progress)
        else:
            count = await wrapping.seal_settings(self._database, SecretSealer(*keys), self._progress)
        return count

    def _progress(self, done: int, total: int) -> None:
        self._say(f"{self._name} key: {done} of {total} rows")

    async def _check(self) -> KeyCheck:
        async with self._database.reading() as connection:
            check = await key_checks.find(connection, self._name)
        if check is None:
            raise CannotRotate(f"{self._name} key: the database knows none yet; start the processes once")
        return check

    async def _keep(self, check: KeyCheck) -> None:
        work: Callable[..., Awaitable[None]] = lambda connection: key_checks.replace(connection, check)  # noqa: E731
        await self._database.persist(work, patience=30.0, about="keys")


def _text(keys: Sequence[bytes]) -> str:
    return " ".join(key.hex() for key in keys)
