"""Installation of several Webapps, Coreapps and network nodes on one database and one Redis."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB, free_port
from harness.redis_server import RedisServer


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessCounts:
    """Number of processes of each kind."""

    webapps: int = 2
    # Coreapps in excess of the shards are standbys.
    coreapps: int = 3
    networks: int = 2
    shards: int = 2


class Cluster(Installation):
    """Installation whose processes are `webapp`, `webapp2` …

    Coreapps are assigned to the network's nodes round robin, the robots to the last node.
    """

    def __init__(
        self,
        directory: Path,
        mariadb: MariaDB,
        redis: RedisServer | None,
        environment: Mapping[str, str],
        *,
        shape: ProcessCounts,
        profile: bool = False,
    ) -> None:
        """redis: required for more than one network node; `None` for none."""
        shared = {"TIDINGS_NETWORK_NODE": "network"} | ({"TIDINGS_REDIS_URL": redis.url} if redis is not None else {})
        super().__init__(
            directory,
            mariadb,
            {**shared, **environment},
            profile=profile,
            shards=shape.shards,
            coreapps=shape.coreapps,
        )
        self.redis = redis
        self.api_ports = [self.api_port]
        reached = [dict[str, str](), *(self._add_network(name) for name in _others("network", shape.networks))]
        for number, name in enumerate(self.process_names("coreapp")):
            self.processes[name].environment |= reached[number % len(reached)]
        self.processes["robots"].environment |= reached[-1]
        for name in _others("webapp", shape.webapps):
            self._add_webapp(name)
        self._sort()

    async def business(self) -> Business:
        """Return a client that is logged in and connects to all Webapps round robin."""
        business = Business(*self.api_ports)
        await business.log_in()
        return business

    def _add_network(self, name: str) -> dict[str, str]:
        """Add a node; returns the variables by which others reach it."""
        http, tcp = free_port(), free_port()
        reached = {
            "TIDINGS_NETWORK_HTTP_URL": f"http://127.0.0.1:{http}",
            "TIDINGS_NETWORK_TCP_ADDRESS": f"127.0.0.1:{tcp}",
        }
        self.metrics_urls[name] = f"http://127.0.0.1:{http}/metrics"
        listens = {"TIDINGS_NETWORK_NODE": name, "TIDINGS_NETWORK_HTTP_ADDRESS": f"127.0.0.1:{http}"}
        self._add(name, "network", reached | listens)
        return reached

    def _add_webapp(self, name: str) -> None:
        port = free_port()
        self.api_ports.append(port)
        self.metrics_urls[name] = f"http://127.0.0.1:{port}/metrics?format=prometheus"
        self._add(name, "webapp", {"WEBAPP_HOSTNAME": name, "TIDINGS_API_ADDRESS": f"127.0.0.1:{port}"})


def _others(role: str, count: int) -> Iterator[str]:
    return (f"{role}{number}" for number in range(2, count + 1))
