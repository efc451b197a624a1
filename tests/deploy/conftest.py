"""Containers of one compose file."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.podman import Podman


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--podman", help="the directory with the images; `make test-deploy` says it")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Ignore these tests outside `make test-deploy`: containers need separate namespaces and images."""
    return None if config.getoption("--podman", None) else True


@pytest.fixture(scope="session", autouse=True)
def syslog() -> Iterator[None]:
    """Listener for podman's logs about ended containers. Without it podman restarts nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("/run/syslog")
        threading.Thread(target=_discard, args=(listener,), daemon=True).start()
        yield


def _discard(listener: socket.socket) -> None:
    while listener.recv(65536):
        pass


@pytest.fixture(scope="session")
def podman(request: pytest.FixtureRequest) -> Podman:
    return Podman(Path(request.config.getoption("--podman")))
