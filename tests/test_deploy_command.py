"""`make test-deploy` reports a timeout in one line, and leaves no mount, process or directory behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import polling
from tests.deploy.podman import CommandTimedOut, run

ROOT = Path(__file__).parents[1]
# Run with one step that mounts a file system in the directory, as podman does for image layers, and waits.
RUN = """
import sys
from pathlib import Path
from tests.deploy.__main__ import Step, main

STEP = "mkdir $0/mounted && mount -t tmpfs marked $0/mounted && touch $0/mounted/file && echo mounted && exec sleep 600"
place, seconds, step = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
sys.exit(main(place, lambda directory: [Step(["sh", "-c", STEP if step == "wait" else step, str(directory)], seconds)]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Directory in which runs make theirs. Skips on machines that cannot make namespaces."""
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("no namespace can be made here")
    return tmp_path


def start(place: Path, seconds: float = 600, step: str = "wait") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(place), str(seconds), step]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def left(place: Path) -> list[str]:
    """List the directories, mounts and processes that name the place."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place) in line]
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mounted = (entry / "mountinfo").read_text()
        except OSError:
            continue
        if str(place) in mounted and int(entry.name) != os.getpid():
            processes.append(f"process {entry.name}")
    return [*(path.name for path in place.iterdir()), *mounts, *processes]


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=120)
    return output, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interrupted_run_removes_its_mount_processes_and_directory(place: Path, number: signal.Signals) -> None:
    process = start(place)
    assert process.stdout is not None
    assert process.stdout.readline() == "mounted\n"
    assert [entry for entry in left(place) if entry.startswith("process")], "the step sees its mount"
    process.send_signal(number)
    output, errors = finish(process)
    assert errors == f"make test-deploy: interrupted by {number.name}\n"
    assert output.strip().endswith("nothing is left")
    assert process.returncode == 1
    assert left(place) == []


def test_a_step_timeout_prints_one_line_and_cleans_up(place: Path) -> None:
    process = start(place, seconds=1.5)
    output, errors = finish(process)
    (line,) = errors.splitlines()
    assert line.startswith("make test-deploy: gave up after 1.5 s: sh -c")
    assert output.strip().endswith("nothing is left")
    assert process.returncode == 1
    assert left(place) == []


def test_the_next_run_removes_the_leftovers_of_a_killed_run(place: Path) -> None:
    process = start(place)
    assert process.stdout is not None
    assert process.stdout.readline() == "mounted\n"
    other = start(place, step="true")
    finish(other)
    assert other.returncode == 0
    assert len(list(place.iterdir())) == 1, "a directory that is in use stays"
    process.kill()
    finish(process)
    # The kernel kills its processes asynchronously.
    polling.wait_until(lambda: not [entry for entry in left(place) if entry.startswith("process")], seconds=60)
    assert len(list(place.iterdir())) == 1
    finish(start(place, step="true"))
    assert left(place) == []


def test_the_run_exits_with_the_status_of_its_step(place: Path) -> None:
    process = start(place, step="exit 5")
    finish(process)
    assert process.returncode == 5


def test_a_podman_command_timeout_is_reported_in_one_line() -> None:
    with pytest.raises(CommandTimedOut) as raised:
        run(["sleep", "600"], os.environ, timeout=0.2)
    assert str(raised.value) == "timed out after 0.2 s: sleep 600"


def test_a_timeout_report_has_no_traceback(tmp_path: Path) -> None:
    """Run pytest with the settings of `tests/deploy` on a test that exceeds its timeout."""
    test = tmp_path / "test_waits.py"
    test.write_text(
        "import os\n"
        "from harness import polling\n"
        "from tests.deploy.podman import run\n"
        "def test_a_command(): run(['sleep', '600'], os.environ, timeout=0.2)\n"
        "def test_a_state(): polling.wait_until(lambda: False, seconds=0.1, failure=lambda: 'not healthy')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.deploy.reports", f"--rootdir={tmp_path}", str(test)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "2 failed" in done.stdout
    assert "timed out after 0.2 s: sleep 600" in done.stdout
    assert "not healthy" in done.stdout
    assert "def test_a_command" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
