"""The item that a process is handling when it dies is known to the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coreapp import in_hand
from coreapp.blame import blamed
from coreapp.in_hand import InHand
from tidings.storage.business.quarantine import Item

DYING = """
import os, signal, sys
from pathlib import Path
from coreapp.in_hand import InHand
held = InHand.open([Path(sys.argv[1])])
with held.hold("job", "before"):
    pass
if sys.argv[2]:
    with held.hold("delivery", sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die(directory: Path, item_id: str) -> None:
    done = subprocess.run([sys.executable, "-c", DYING, str(directory), item_id])
    assert done.returncode == -signal.SIGKILL


def found(*directories: Path) -> list[Item]:
    with in_hand.left_behind(directories) as items:
        return list(items)


def test_the_item_of_a_killed_process_is_found_once_and_nothing_without_one(tmp_path: Path) -> None:
    die(tmp_path, "e-1")
    die(tmp_path, "")
    assert found(tmp_path, tmp_path / "missing") == [Item("delivery", "e-1")]
    assert found(tmp_path) == []


def test_an_item_that_could_not_be_counted_is_found_again(tmp_path: Path) -> None:
    die(tmp_path, "e-1")
    with pytest.raises(RuntimeError), in_hand.left_behind([tmp_path]) as items:
        assert items == [Item("delivery", "e-1")]
        raise RuntimeError
    assert found(tmp_path) == [Item("delivery", "e-1")]


def test_the_file_of_a_live_process_is_left_alone(tmp_path: Path) -> None:
    held = InHand.open([tmp_path])
    with held.hold("job", "mine"):
        assert found(tmp_path) == []
    held.close()
    assert list((tmp_path / in_hand.FOLDER).iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\xff", b"\x05job a" + b"x" * 300, b"\x04what", b"\x06\xff\xfe\xfd job"]
)
def test_a_file_with_any_content_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / in_hand.FOLDER).mkdir()
    (tmp_path / in_hand.FOLDER / "1-a").write_bytes(content)
    assert all(item == Item("job", "a") for item in found(tmp_path))


def test_without_a_writable_directory_the_process_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.write_text("")
    held = InHand.open([file, tmp_path / "file" / "below"])
    with held.hold("job", "x" * 300):
        pass
    held.close()
    assert "in_hand.not_kept" in caplog.text


def test_an_error_carries_the_item_that_was_in_hand(tmp_path: Path) -> None:
    held = InHand()
    with pytest.raises(ValueError, match="bad") as raised, held.hold("job", "a"):
        raise ValueError("bad")
    assert blamed(raised.value) == (Item("job", "a"),)
    outer = RuntimeError()
    outer.__cause__ = raised.value
    assert blamed(outer) == (Item("job", "a"),)
