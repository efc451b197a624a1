"""Partition between two processes: their packets are dropped in both directions, without notice to either."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import packages
from harness.installation import Installation
from harness.mariadb import MariaDB
from tests.crash.scene import ENVIRONMENT, Phase, Scene
from tests.reliability.scenario import run_scenario

pytestmark = pytest.mark.whole_system

NFT = {"nft": "nftables"}
ROOT = Path(__file__).parents[2]
# Address of the database for each process, by which the packets of one are distinguished from those of the others.
DATABASES = {"webapp": "127.0.0.2", "coreapp": "127.0.0.3", "network": "127.0.0.4"}


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """Partition that drops packets for the middle third of the phase."""

    rules: tuple[str, ...]  # matches of nftables

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        await asyncio.sleep(duration / 3)
        try:
            for rule in self.rules:
                _nft("add", "rule", "inet", "partition", "way", *rule.split(), "drop")
            await asyncio.sleep(duration / 3)
        finally:
            _nft("flush", "chain", "inet", "partition", "way")
        phase.trouble()


def _port(installation: Installation, variable: str) -> Partition:
    port = installation.common[variable].rpartition(":")[2]
    return Partition((f"tcp dport {port}", f"tcp sport {port}"))


def _database(process: str) -> Partition:
    address = DATABASES[process]
    return Partition((f"ip daddr {address}", f"ip saddr {address}"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network of its own")
def test_a_partition_between_any_two_processes_loses_no_message(tmp_path: Path) -> None:
    """Run in a separate process, whose network namespace contains nothing else."""
    packages.require(NFT, NFT)
    command = ["unshare", "--net", sys.executable, "-m", "tests.reliability.test_partitions", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT).returncode == 0


async def _play(directory: Path) -> None:
    mariadb = MariaDB(flush_log=1, buffer_pool_mb=256, options=("--bind-address=0.0.0.0",))
    mariadb.start()
    try:
        installation = Installation(directory, mariadb, ENVIRONMENT)
        for process, address in DATABASES.items():
            environment = installation.processes[process].environment
            for variable in ("TIDINGS_BUSINESS_DB_URL", "TIDINGS_NETWORK_DB_URL"):
                environment[variable] = environment[variable].replace("127.0.0.1", address)
        phases = [
            ("webapp and coreapp", _port(installation, "TIDINGS_COREAPP_ADDRESS")),
            ("network and its devices", _port(installation, "TIDINGS_NETWORK_TCP_ADDRESS")),
            ("coreapp and the network's HTTP", _port(installation, "TIDINGS_NETWORK_HTTP_ADDRESS")),
            *((f"{process} and the database", _database(process)) for process in DATABASES),
        ]
        await run_scenario(
            directory / "play",
            [(f"partition: {name}", 36.0, partition) for name, partition in phases],
            test="tests/reliability/test_partitions.py::test_a_partition_between_any_two_processes_loses_no_message",
            recovery=60.0,
            installation=installation,
        )
    finally:
        mariadb.remove()


def _nft(*words: str) -> None:
    subprocess.run(["nft", *words], check=True)


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _nft("add", "table", "inet", "partition")
    _nft("add", "chain", "inet", "partition", "way", "{ type filter hook input priority 0; }")
    asyncio.run(_play(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
