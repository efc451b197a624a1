"""Runs of the system benchmark: number of clients and recipients, and delays of database and network."""

from __future__ import annotations

import dataclasses

from benchmarks.rig import contents, stage
from harness.client import Message


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """One run."""

    name: str
    title: str
    clients: int  # each waits for its response before it sends the next message
    warm: bool  # sessions and contacts exist; otherwise no recipient was ever checked or written to
    contacts_first: bool  # a contacts call precedes each message
    robots: int = 0  # recipients; 0 for one per message
    commit_delay_ms: float = 0.0  # added to every commit of Coreapp and network
    network_delay: str = ""  # milliseconds added to every call of the network, such as `80..150`; empty for none
    statuses_per_post: int = 1  # largest number of statuses in one post to the webhook

    def environment(self) -> dict[str, str]:
        """Return the environment variables of Coreapp and network."""
        found = delays(self.commit_delay_ms, self.network_delay)
        if self.statuses_per_post > 1:
            found["TIDINGS_WEBHOOK_STATUSES_PER_POST"] = str(self.statuses_per_post)
        return found

    def work(self, messages: int) -> list[Message]:
        """Return `messages` texts of 100 bytes."""
        numbers = stage.recipients(self.robots or messages, messages)
        return [contents.text(number, f"Message {i} of {self.name}: ") for i, number in enumerate(numbers)]


def delays(commit_ms: float = 0.0, network: str = "") -> dict[str, str]:
    """Return variables that delay every commit of Coreapp and network, and every call of the network."""
    distant = {"TIDINGS_NETWORK_DELAY_MS": network} if network else {}
    return {**distant, "TIDINGS_DB_COMMIT_DELAY_MS": str(commit_ms)}


_COLD = Workload("cold64", "64 clients, cold", clients=64, warm=False, contacts_first=True)
WARM = Workload("warm64", "64 clients, warm", clients=64, warm=True, contacts_first=False, robots=1000)
_BATCHED = dataclasses.replace(
    WARM, name="warm64-batched", title="64 clients, warm, up to 100 statuses in a post", statuses_per_post=100
)
_FEW = dataclasses.replace(_COLD, name="cold4", title="4 clients, cold", clients=4)
_MANY = dataclasses.replace(WARM, name="warm256", title="256 clients, warm", clients=256)


def _slowed(base: Workload) -> tuple[Workload, ...]:
    """Return the base, then its delayed forms."""
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


# Runs that alternate; the first is the base of the ratios.
GROUPS = ((*_slowed(WARM), _BATCHED), (*_slowed(_COLD), _FEW), _slowed(_MANY))
WORKLOADS = tuple(workload for group in GROUPS for workload in group)
