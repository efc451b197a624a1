"""Guide to a first message with systemd: the page's commands, and processes started as the units describe."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.mariadb import MariaDB, free_port
from harness.processes import Process
from tests.deploy.terminal import ROOT, Terminal, code_blocks
from tidings.observability import interpreter

FOLDER = ROOT / "docker" / "systemd"
UNIT_DIRECTORIES = "/var/lib/tidings"
USERS = ("tidings_business", "tidings_network", "tidings_migrate")
PORTS = {"TIDINGS_API_ADDRESS", "TIDINGS_COREAPP_ADDRESS", "TIDINGS_COREAPP_METRICS_ADDRESS",
         "TIDINGS_NETWORK_HTTP_ADDRESS", "TIDINGS_NETWORK_TCP_ADDRESS"}  # fmt: skip


class Machine:
    """Machine without systemd. The page's directories are below a directory of the test, its ports are free ones."""

    def __init__(self, directory: Path, mariadb: MariaDB) -> None:
        self.etc = directory / "etc"
        self._directory = directory
        self._addresses = {name: f"127.0.0.1:{free_port()}" for name in sorted(PORTS)}
        self._webhook = str(free_port())
        self._mariadb = mariadb
        program = directory / "tidings"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli.main "$@"\n')
        program.chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA_"))},
            "TIDINGS": str(program),
            "PYTHONUNBUFFERED": "1",
        }

    def here(self, text: str) -> str:
        """Adapt commands of the page to this machine."""
        replaced = {
            "/opt/tidings/bin/tidings listen": f"/opt/tidings/bin/tidings listen --port {self._webhook}",
            "/opt/tidings/bin/tidings": str(self._directory / "tidings"),
            "/etc/tidings": str(self.etc),
            UNIT_DIRECTORIES: str(self._directory),
            "127.0.0.1:9090": self._addresses["TIDINGS_API_ADDRESS"],
            "127.0.0.1:8800": f"127.0.0.1:{self._webhook}",
        }
        for theirs, ours in replaced.items():
            text = text.replace(theirs, ours)
        return re.sub(r"^systemctl .*$", "", text, flags=re.MULTILINE)

    def add_addresses(self) -> None:
        """Add variables for free ports and the database's port to the common file."""
        port = self._mariadb.port
        network = self._addresses["TIDINGS_NETWORK_HTTP_ADDRESS"]
        lines = [*(f"{name}={value}" for name, value in self._addresses.items())]
        lines += [f"WA_DB_PORT={port}", f"TIDINGS_NETWORK_HTTP_URL=http://{network}"]
        with (self.etc / "tidings.env").open("a") as file:
            file.write("\n".join(lines) + "\n")

    def unit(self, role: str) -> dict[str, str]:
        """Return the environment of a unit: its files of variables and its `Environment` lines."""
        text = self.here((FOLDER / f"tidings-{role}.service").read_text(encoding="utf-8"))
        variables = dict(self.environment)
        for path in re.findall(r"^EnvironmentFile=(.*)$", text, re.MULTILINE):
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            variables |= dict(line.split("=", 1) for line in lines)
        variables |= dict(line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE))
        return variables


@pytest.fixture
def machine(tmp_path: Path, mariadb: MariaDB) -> Iterator[Machine]:
    yield Machine(tmp_path, mariadb)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        for schema in ("business", "network"):
            cursor.execute(f"DROP DATABASE IF EXISTS tidings_{schema}")
        for user in USERS:
            cursor.execute(f"DROP USER IF EXISTS '{user}'@'127.0.0.1'")


@pytest.fixture
def terminal(machine: Machine) -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def make() -> Terminal:
        opened.append(Terminal(machine.environment))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_environment_files_are_written_once_and_readable_only_by_root(machine: Machine) -> None:
    command = [FOLDER / "environment.sh", machine.etc]
    subprocess.run(command, env=machine.environment, check=True, capture_output=True)
    made = {path.name: path.read_text() for path in machine.etc.iterdir()}
    assert {oct(path.stat().st_mode & 0o777) for path in machine.etc.iterdir()} == {"0o600"}
    again = subprocess.run(command, env=machine.environment, capture_output=True, text=True)
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
    assert {path.name: path.read_text() for path in machine.etc.iterdir()} == made
    # No process has the secrets of another one.
    master = re.search(r"TIDINGS_MASTER_KEY=(\w{64})", made["coreapp.env"])
    assert master is not None
    assert [name for name, text in made.items() if master[1] in text] == ["coreapp.env"]


def migrate(machine: Machine) -> None:
    command = [sys.executable, "-m", "cli.main", "migrate"]
    done = subprocess.run(command, env=machine.unit("migrate"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_the_guide_leads_to_a_delivered_message_and_a_received_callback(
    machine: Machine, terminal: Callable[[], Terminal], mariadb: MariaDB, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "deploy" / "systemd.md").read_text(encoding="utf-8")
    _, files, _, trying, listen, send, doctor = code_blocks(page)
    first, second, third = terminal(), terminal(), terminal()
    third.run(
        machine.here(files.splitlines()[0]).replace(
            "docker/systemd/environment.sh", f"{FOLDER}/environment.sh {machine.etc}"
        ),
        60,
    )
    with mariadb.connect() as connection, connection.cursor() as cursor:
        statements = (machine.etc / "users.sql").read_text().splitlines()
        for statement in [line for line in statements if not line.startswith("--")]:
            cursor.execute(statement)
    machine.add_addresses()
    settings, robots = trying.split("systemctl", 1)[0], trying.partition("tidings-webapp\n")[2]
    third.run(machine.here(settings), 30)

    migrate(machine)
    processes = [Process(role, role, machine.unit(role), tmp_path) for role in ("network", "coreapp", "webapp")]
    try:
        for process in processes:
            await process.start()
        first.type(machine.here(robots))
        first.wait(r"robots\.ready", 120)
        second.type(machine.here(listen))
        second.wait("waiting for callbacks", 60)
        response = third.run(machine.here(send), 120)
        sent = json.loads(response[response.rindex('{"messages"') :].splitlines()[0])["messages"][0]["id"]
        for status in ("sent", "delivered", "read"):
            second.wait(rf"status +{status} +{sent} to 15550140001", 120)
        second.wait('message +text +.* from 15550140001: "Hello!"', 60)
        # The test's database does not commit to its disk, which is a warning. So is a Python without PGO.
        warnings = "1 warning" if interpreter.read().is_optimised else "2 warnings"
        found = third.run(machine.here(doctor), 120, statuses=(1,))
        assert re.search(rf"^0 errors, {warnings}, \d+ fine$", found, re.M)
    finally:
        for process in reversed(processes):
            await process.stop()
