"""The item that a process is handling when it dies is known to the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coreapp import work_in_progress
from coreapp.crash_suspects import suspects_of
from coreapp.work_in_progress import WorkInProgress
from tidings.storage.business.quarantine import Item

DYING = """
import os, signal, sys
from pathlib import Path
from coreapp.work_in_progress import WorkInProgress
work = WorkInProgress.open([Path(sys.argv[1])])
with work.handling("job", "before"):
    pass
if sys.argv[2]:
    with work.handling("delivery", sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die(directory: Path, item_id: str) -> None:
    done = subprocess.run([sys.executable, "-c", DYING, str(directory), item_id])
    assert done.returncode == -signal.SIGKILL


def found(*directories: Path) -> list[Item]:
    with work_in_progress.items_of_crashed(directories) as items:
        return list(items)


def test_the_item_that_a_killed_process_handled_is_found_once(tmp_path: Path) -> None:
    die(tmp_path, "e-1")
    die(tmp_path, "")
    assert found(tmp_path, tmp_path / "missing") == [Item("delivery", "e-1")]
    assert found(tmp_path) == []


def test_an_item_that_could_not_be_counted_is_found_again(tmp_path: Path) -> None:
    die(tmp_path, "e-1")
    with pytest.raises(RuntimeError), work_in_progress.items_of_crashed([tmp_path]) as items:
        assert items == [Item("delivery", "e-1")]
        raise RuntimeError
    assert found(tmp_path) == [Item("delivery", "e-1")]


def test_the_file_of_a_live_process_is_left_alone(tmp_path: Path) -> None:
    work = WorkInProgress.open([tmp_path])
    with work.handling("job", "mine"):
        assert found(tmp_path) == []
    work.close()
    assert list((tmp_path / work_in_progress.FOLDER).iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\xff", b"\x05job a" + b"x" * 300, b"\x04what", b"\x06\xff\xfe\xfd job"]
)
def test_a_file_with_any_content_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / work_in_progress.FOLDER).mkdir()
    (tmp_path / work_in_progress.FOLDER / "1-a").write_bytes(content)
    assert all(item == Item("job", "a") for item in found(tmp_path))


def test_without_a_writable_directory_the_process_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.write_text("")
    work = WorkInProgress.open([file, tmp_path / "file" / "below"])
    with work.handling("job", "x" * 300):
        pass
    work.close()
    assert "work_in_progress.not_kept" in caplog.text


def test_an_error_carries_the_item_that_was_being_handled(tmp_path: Path) -> None:
    work = WorkInProgress()
    with pytest.raises(ValueError, match="bad") as raised, work.handling("job", "a"):
        raise ValueError("bad")
    assert suspects_of(raised.value) == (Item("job", "a"),)
    outer = RuntimeError()
    outer.__cause__ = raised.value
    assert suspects_of(outer) == (Item("job", "a"),)
