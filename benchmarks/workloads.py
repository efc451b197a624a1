"""The runs of the system benchmark: who sends how many texts to whom, and how slow database and network are made."""

from __future__ import annotations

import dataclasses

from benchmarks.rig import contents, stage
from harness.client import Message


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """One run.

    clients:         each waits for its answer before it sends the next.
    warm:            sessions and contacts are at hand; otherwise nobody was ever written to or checked.
    contacts_first:  a contacts call before each message.
    robots:          recipients; 0 is one for each message.
    commit_delay_ms: added to every commit of Coreapp and network.
    network_delay:   milliseconds added to every call of the network, `80..150`; empty for none.
    """

    name: str
    title: str
    clients: int
    warm: bool
    contacts_first: bool
    robots: int = 0
    commit_delay_ms: float = 0.0
    network_delay: str = ""

    def environment(self) -> dict[str, str]:
        """For Coreapp and network."""
        return delays(self.commit_delay_ms, self.network_delay)

    def work(self, messages: int) -> list[Message]:
        """So many texts of 100 bytes."""
        numbers = stage.recipients(self.robots or messages, messages)
        return [contents.text(number, f"Message {i} of {self.name}: ") for i, number in enumerate(numbers)]


def delays(commit_ms: float = 0.0, network: str = "") -> dict[str, str]:
    """Variables that make every commit of Coreapp and network later, and every call of the network."""
    distant = {"TIDINGS_NETWORK_DELAY_MS": network} if network else {}
    return {**distant, "TIDINGS_DB_COMMIT_DELAY_MS": str(commit_ms)}


_COLD = Workload("cold64", "64 clients, cold", clients=64, warm=False, contacts_first=True)
WARM = Workload("warm64", "64 clients, warm", clients=64, warm=True, contacts_first=False, robots=1000)
_MANY = dataclasses.replace(WARM, name="warm256", title="256 clients, warm", clients=256)


def _slowed(base: Workload) -> tuple[Workload, ...]:
    """The base first."""
    commits = [
        dataclasses.replace(
            base, name=f"{base.name}-commit{delay}", title=f"{base.title}, {delay} ms a commit", commit_delay_ms=delay
        )
        for delay in (5, 15)
    ]
    distant = dataclasses.replace(
        base, name=f"{base.name}-distant", title=f"{base.title}, network 80–150 ms", network_delay="80..150"
    )
    return (base, *commits, distant)


# Runs that take turns, the first being what the others are compared with.
GROUPS = (_slowed(WARM), _slowed(_COLD), _slowed(_MANY))
WORKLOADS = tuple(workload for group in GROUPS for workload in group)
