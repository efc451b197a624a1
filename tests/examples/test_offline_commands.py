"""The commands of `docs/offline.md` lead from a fresh clone to signed webhooks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from harness import polling
from harness.mariadb import free_port
from tests.examples import page_files

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 180.0
READY = re.compile(r"^  API +http", re.MULTILINE)


def blocks(ports: Mapping[str, int]) -> Mapping[str, str]:
    """Return the commands of the page by name, with other ports."""
    found = dict(page_files.shown(page_files.OFFLINE))
    for written, port in ports.items():
        found = {name: re.sub(rf"\b{written}\b", str(port), text) for name, text in found.items()}
    return found


def _environment(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the variables of a terminal: no settings but the addresses, which others on this machine may use.

    The variables of make are left out: `make up` would take the VENV of the make that runs this test.
    """
    foreign = ("TIDINGS_", "WA_", "PYTEST_", "MAKE", "MFLAGS")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    parts = ("NETWORK_HTTP", "NETWORK_TCP", "COREAPP", "COREAPP_METRICS")
    addresses = {f"TIDINGS_{part}_ADDRESS": f"127.0.0.1:{free_port()}" for part in parts}
    return {**own, **addresses, "TIDINGS_API_ADDRESS": f"127.0.0.1:{ports['9090']}"}


@contextlib.contextmanager
def _terminal(command: str, directory: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Run a command in the background, and yield the file of its output. It is interrupted at the end."""
    output = directory / f"output-{time.monotonic_ns()}.txt"
    with output.open("w") as written:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=directory,
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield output
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_for(pattern: re.Pattern[str], output: Path, count: int = 1) -> None:
    polling.wait_until(
        lambda: len(pattern.findall(output.read_text())) >= count, seconds=MOST_SECONDS, failure=output.read_text
    )


def _wait_until_listening(port: int) -> None:
    def is_listening() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            pass
        return False

    polling.wait_until(is_listening, seconds=MOST_SECONDS)


@pytest.mark.whole_system
def test_the_commands_lead_from_a_clone_to_signed_webhooks_in_under_three_minutes(tmp_path: Path) -> None:
    ports = {"9090": free_port(), "8080": free_port()}
    shown, environment = blocks(ports), _environment(ports)
    clone = tmp_path / "tidings"
    started = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    program = clone / "docs" / "examples" / "offline" / "receiver.py"
    program.write_text(program.read_text().replace("8080", str(ports["8080"])))
    with _terminal(shown["up"], clone, environment) as up:
        _wait_for(READY, up)
        with _terminal(shown["receive"], clone, environment) as received:
            _wait_until_listening(ports["8080"])
            sent = subprocess.run(
                ["sh", "-c", shown["send"]], cwd=clone, env=environment, capture_output=True, text=True, check=True
            )
            assert sent.stdout.count('{"success":true}') == 2, sent.stdout
            _wait_for(re.compile("^signed ", re.MULTILINE), received)
            first = time.monotonic() - started
            _wait_for(re.compile('^signed .*"status":"(?:sent|delivered|read)"', re.MULTILINE), received, 3)
            _wait_for(re.compile('^signed .*"from":"15550140001".*"body":"Hello"', re.MULTILINE), received)
            assert "FORGED" not in received.read_text()
    print(f"\nfirst signed webhook after {first:.0f} s with {sys.version.split()[0]}", flush=True)
    assert first < MOST_SECONDS
