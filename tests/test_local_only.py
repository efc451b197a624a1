"""Nothing leaves this machine in tests: public names and addresses are refused, and fail the test."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from socket import getaddrinfo
from typing import Any

import psutil
import pytest

from harness import polling
from harness.installation import Installation
from harness.local_only import sitecustomize
from harness.local_only.sitecustomize import ExternalAccessRefused
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings

NAME, ADDRESS = "graph.facebook.com", "157.240.0.1"


def connect(address: Any, family: int = socket.AF_INET) -> None:
    with socket.socket(family) as opened:
        opened.settimeout(0.1)
        opened.connect(address)


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda: getaddrinfo(NAME, 443), NAME),
        (lambda: socket.getaddrinfo(NAME.upper().encode() + b".", 443), NAME.upper() + "."),
        (lambda: socket.gethostbyname(NAME), NAME),
        (lambda: socket.gethostbyname_ex(NAME), NAME),
        (lambda: socket.create_connection((NAME, 443), timeout=0.1), NAME),
        (lambda: connect((ADDRESS, 443)), ADDRESS),
        (lambda: connect(("2a03:2880::1", 443), socket.AF_INET6), "2a03:2880::1"),
        (lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"", (ADDRESS, 53)), ADDRESS),
    ],
)
def test_a_public_name_or_address_is_refused_and_recorded(attempt: Callable[[], object], named: str) -> None:
    with pytest.raises(ExternalAccessRefused, match="nothing may leave"):
        attempt()
    (recorded,) = sitecustomize.take()
    assert named in recorded
    assert sitecustomize.take() == []


async def test_look_ups_in_threads_are_recorded_although_their_error_is_handled() -> None:
    with pytest.raises(OSError, match="nothing may leave"):
        await asyncio.get_running_loop().getaddrinfo(NAME, 443)
    with pytest.raises(OSError, match="nothing may leave"):
        await EgressGuard(OutgoingSettings(addresses.LOOPBACK)).connect(NAME, 443)
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(urllib.request.urlopen, f"https://{NAME}/")
    assert len(sitecustomize.take()) == 3


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", None, "10.0.0.1", socket.gethostname(), ADDRESS])
def test_local_names_and_texts_that_are_addresses_may_be_looked_up(host: str | None) -> None:
    try:
        socket.getaddrinfo(host, 443)
    except ExternalAccessRefused:
        raise
    except socket.gaierror:
        # Not every machine knows its own name.
        assert host == socket.gethostname()
    assert sitecustomize.take() == []


@pytest.mark.parametrize("host", ["example.com", "hook.example.org.", "a.invalid", "b.test"])
def test_names_for_documents_are_refused_and_fail_no_test(host: str) -> None:
    with pytest.raises(ExternalAccessRefused):
        socket.getaddrinfo(host, 443)
    assert sitecustomize.take() == []


def test_a_python_process_with_the_environment_does_the_same() -> None:
    look_up = f"import socket\ntry: socket.getaddrinfo('{NAME}', 443)\nexcept OSError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", look_up], env=sitecustomize.environment(), capture_output=True, text=True
    )
    assert "nothing may leave this machine" in done.stdout, done.stderr
    (recorded,) = sitecustomize.take()
    assert NAME in recorded


@pytest.mark.whole_system
async def test_the_processes_of_an_installation_do_the_same(tmp_path: Path) -> None:
    installation = Installation(tmp_path, None)
    try:
        await installation.start()
        business = await installation.business()
        for name in ("webapp", "coreapp", "network"):
            process = installation.processes[name]
            assert process.pid is not None
            variables = psutil.Process(process.pid).environ()
            assert sitecustomize.environment().items() <= variables.items()
        # The webhook is called by the Coreapp when there is a status.
        await business.set_webhook(f"https://{NAME}/")
        await business.check_contacts(["15550110001"])
        await business.check_call("POST", "/v1/messages", {"to": "15550110001", "text": {"body": "Hello"}})
        recorded: list[str] = []

        def is_recorded() -> bool:
            recorded.extend(sitecustomize.take())
            return any(NAME in attempt and "coreapp" in attempt for attempt in recorded)

        await polling.until(is_recorded, seconds=30.0, pause=0.05)
    finally:
        await installation.stop()
        sitecustomize.take()
