"""Checks of file stores: the store is the one that the database records, and a bucket grants the needed permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, cast

from cli.doctor.findings import Finding, error, fine, warning
from tidings.objects.identity import StoreIdentity
from tidings.objects.store import FileStore, MarkedStore


class LifecycleRules(Protocol):
    """Lifecycle rules of a bucket."""

    @property
    def files_prefix(self) -> str:
        """Common prefix of the keys of all files."""

    async def lifecycle(self) -> Sequence[Mapping[str, Any]]:
        """Return the enabled rules. Raises `OSError`."""


class BucketCheck:
    """Check of a bucket's permissions and lifecycle rules; passes for a directory, which has neither."""

    def __init__(self, name: str, store: FileStore, *, keeps: float | None) -> None:
        """Create the check.

        name: name of the store.
        keeps: seconds that a file must be kept; None for no limit.
        """
        self.name = f"{name} bucket"
        self._store = store
        self._keeps = keeps

    async def run(self) -> Sequence[Finding]:
        if self._store.is_local:
            return [fine(self.name, "files are in a directory")]
        where = self._store.location
        remedy = "give the credentials the policy of docs/operations.md#buckets, or correct the settings of the bucket"
        try:
            # Without the permission to list, S3 answers 403 instead of 404 for a missing file. A message with that file
            # would then be retried without end.
            await self._store.has_any(["0" * 32])
            stored = await self._store.write(_chunk(), limit=1)
            await self._store.delete([stored.name])
        except OSError as failure:
            return [error(self.name, f"{where}: {failure}", remedy)]
        try:
            rules = await cast(LifecycleRules, self._store).lifecycle()
        except OSError as failure:
            text = f"{where}: its lifecycle rules cannot be read: {failure}"
            return [warning(self.name, text, "allow s3:GetLifecycleConfiguration, or check the rules by hand")]
        return [self.evaluate(rules, cast(LifecycleRules, self._store).files_prefix)]

    def evaluate(self, rules: Sequence[Mapping[str, Any]], prefix: str) -> Finding:
        """Return the finding for the lifecycle rules that apply to files below the prefix."""
        aborts = False
        for rule in rules:
            of = rule.get("Filter", rule).get("Prefix", "")
            if not (of.startswith(prefix) or prefix.startswith(of)):
                continue
            aborts = aborts or "AbortIncompleteMultipartUpload" in rule
            days = rule.get("Expiration", {}).get("Days")
            if days is not None and (self._keeps is None or days * 86400 < self._keeps):
                text = f"the rule {rule.get('ID', 'without a name')} deletes files after {days} days"
                return error(self.name, text, "Tidings deletes files itself: remove the rule, or give it more days")
        if not aborts:
            text = "no lifecycle rule aborts incomplete multipart uploads"
            return warning(self.name, text, "add a rule of one day: parts of interrupted uploads are billed")
        return fine(self.name, "its lifecycle rules keep the files")


async def _chunk() -> AsyncIterator[bytes]:
    yield b"x"


class RecordedStoreCheck:
    """Check of the marker of one file store."""

    def __init__(self, identity: StoreIdentity, store: MarkedStore) -> None:
        self.name = f"{identity.name} store"
        self._identity = identity
        self._store = store

    async def run(self) -> Sequence[Finding]:
        where = self._store.location
        adopt = f"tidings files adopt {self._identity.name}"
        remedy = f"mount or configure the recorded one; to use this one from now on: `{adopt}`"
        try:
            if not await self._identity.is_recorded():
                return [warning(self.name, f"{where} is not recorded yet", "the first start of a process records it")]
            wrong = await self._identity.refresh()
        except OSError as failure:
            return [error(self.name, f"{where}: {failure.strerror or failure}", remedy)]
        return [error(self.name, wrong, remedy) if wrong else fine(self.name, f"{where} is the recorded one")]
