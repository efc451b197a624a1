"""The directory store gives the guarantees of every file store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.objects.conformance import Again, FileStoreSuite
from tidings.objects.directory import DirectoryStore
from tidings.objects.store import FileStore


class TestDirectory(FileStoreSuite):
    @pytest.fixture
    def files(self, tmp_path: Path) -> FileStore:
        made = DirectoryStore(tmp_path / "files")
        made.prepare()
        return made

    @pytest.fixture
    def again(self, tmp_path: Path) -> Again:
        async def make() -> FileStore:
            return DirectoryStore(tmp_path / "files")

        return make
