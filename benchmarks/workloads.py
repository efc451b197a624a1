"""The runs of the system benchmark: who sends what to whom, and how slow database and network are made."""

from __future__ import annotations

import dataclasses

PREFIX = "1555011"  # robots that read at once


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """One run.

    clients:         each waits for its answer before it sends the next.
    warm:            sessions and contacts are at hand; otherwise nobody was ever written to or checked.
    contacts_first:  a contacts call before each message.
    robots:          recipients; 0 is one for each message.
    commit_delay_ms: added to every commit of Coreapp and network.
    network_delay:   milliseconds added to every call of the network, `80..150`; empty for none.
    share:           of the messages asked for, where all of them would only take long.
    """

    name: str
    title: str
    clients: int
    warm: bool
    contacts_first: bool
    robots: int = 0
    commit_delay_ms: float = 0.0
    network_delay: str = ""
    share: float = 1.0

    def environment(self) -> dict[str, str]:
        """For Coreapp and network."""
        delays = {"TIDINGS_NETWORK_DELAY_MS": self.network_delay} if self.network_delay else {}
        return {**delays, "TIDINGS_DB_COMMIT_DELAY_MS": str(self.commit_delay_ms)}

    def recipients(self, messages: int) -> list[str]:
        """The number for each message."""
        robots = self.robots or messages
        return [f"{PREFIX}{index % robots:04d}" for index in range(messages)]


_SEED = Workload("seed", "seed: 4 clients, cold", clients=4, warm=False, contacts_first=True)
_COLD = Workload("cold64", "64 clients, cold", clients=64, warm=False, contacts_first=True)
_WARM = Workload("warm64", "64 clients, warm", clients=64, warm=True, contacts_first=False, robots=1000)


def _slowed(base: Workload, *, share: float = 1.0) -> list[Workload]:
    variants = [
        dataclasses.replace(
            base,
            name=f"{base.name}-commit{delay}",
            title=f"{base.title}, {delay} ms a commit",
            commit_delay_ms=delay,
            share=share,
        )
        for delay in (5, 15)
    ]
    distant = dataclasses.replace(
        base,
        name=f"{base.name}-distant",
        title=f"{base.title}, network 80–150 ms",
        network_delay="80..150",
        share=share,
    )
    return [*variants, distant]


WORKLOADS = (_SEED, _COLD, _WARM, *_slowed(_COLD), *_slowed(_WARM), *_slowed(_SEED, share=0.2))


def find(name: str) -> Workload:
    """Raises `KeyError`."""
    return {workload.name: workload for workload in WORKLOADS}[name]


def text(run: str, position: int) -> str:
    """A text of 100 characters that no other message has."""
    return f"Message {position} of {run}: ".ljust(100, "…")


# The ratios that the report gives: this run to that one.
RATIOS = tuple(
    (f"{name}-{change}", name) for name in ("cold64", "warm64", "seed") for change in ("commit5", "commit15", "distant")
)
