"""Reading of local files piece by piece."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from tidings.media import reading


class BrokenFile(io.BytesIO):
    """File on a disk that fails."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, "read failed")


@pytest.mark.parametrize("piece", [1_000, 65_536, 100_000])
@pytest.mark.parametrize("size", [0, 10, 65_535, 65_536, 65_537, 300_000])
async def test_pieces_are_full_up_to_the_end_of_the_file(tmp_path: Path, size: int, piece: int) -> None:
    path, content = tmp_path / "file", os.urandom(size)
    path.write_bytes(content)
    reader = await reading.local(lambda: path.open("rb"))()
    pieces = [await reader.read(piece) for _ in range(-(-size // piece) + 1)]
    await reader.close()
    assert b"".join(pieces) == content
    assert all(len(part) == piece for part in pieces[: size // piece])
    assert pieces[-1] == b""


async def test_a_file_is_read_from_its_position(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"head and rest")
    with path.open("rb") as file:
        file.seek(5)
        reader = await reading.local(lambda: file)()
        assert await reader.read(100) == b"and rest"


async def test_a_file_whose_read_fails_at_opening_is_closed() -> None:
    file = BrokenFile()
    with pytest.raises(OSError, match="read failed"):
        await reading.local(lambda: file)()
    assert file.closed
