"""Report sections on the peers: each part with Tidings first, durability, the published table."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers import delivery, install
from benchmarks.peers.jobs import ENQUEUED, WORKED
from benchmarks.rig.report import table
from benchmarks.rig.run import Ratio, Run

HOW = """\
Taken by `make bench-peers` (`python -m benchmarks.peers`). Every peer starts on a fresh store and does the same work as
Tidings; they take turns, and given are the runs in the middle. A run is no result unless every job, post and message is
accounted for. CPU is that of all processes of a peer, with all that they start.

- *jobs*: 64 clients enqueue jobs of 200 B, each on its own and durable before the client goes on; workers in the same
  process note each. The rate counts until the last job was worked; *enqueued* is what a client waits, *worked* from the
  beginning of that to the worker.
- *apart*: the same with the clients in one process and the workers in another. Tidings' jobs belong to the owner of a
  shard, so that the clients call it over a connection, and it answers after the commit.
- *webhooks*: the same as *jobs* with a signed POST of a status (some 200 B) for each job, 24 at a time, to the webhook
  of the benchmarks, which checks signatures.
- *delivery*: one sender, 1,000 devices with a connection each, 4 KB; first 1,000 messages a second, then as many as go
  through with 1,000 under way. One Go program has the sender and all devices, with as little as each protocol asks for.
- *table*: the published comparison (seed 002): mean ms until a client has acknowledged all its messages, the clients at
  the same time; 10 samples, 2 where a sample has 100,000 messages."""

NOT_TO_BE_HAD = """\
## What could not be measured

- **Outpost**, **Convoy**, **WebhookX** and **Centrifugo**: the Go module proxy answers "not available" for their
  modules (`hookdeck/outpost`, `frain-dev/convoy`, `webhookx-io/webhookx`, `centrifugal/centrifugo/v6`), and Debian has
  none of them. For Centrifugo its library, Centrifuge, stands in a program of our own; for the webhook servers River
  and JetStream with a worker that posts, which do less: no subscriptions, no log of attempts.
- **Mocks of the API**: the two that are known, `ron96G/whatsapp-bizapi-mock` (the On-Premises API, in Go) and
  `mjarkk/whatsapp-dev` (the Cloud API, in Go), are not to be had from the Go module proxy either; PyPI and npm list
  clients and libraries only."""


HEADS = {
    "jobs": "## Jobs",
    "apart": "## Jobs from one process to another",
    "webhooks": "## Webhooks",
    "delivery": "## 4 KB to 1,000 connected clients",
    "table": "## The published table",
}


def part_of(run: Run) -> str:
    """Return the part of a run."""
    return run.name.partition("-")[0]


def is_ours(name: str) -> bool:
    """Return whether the run is of Tidings."""
    return name.endswith("-tidings")


def part(name: str, runs: Sequence[Run], ratios: Sequence[Ratio]) -> str:
    """Return the summary of one part in Markdown.

    runs: one per peer, Tidings' first
    """
    match name:
        case "table":
            lines = _published(runs)
        case "delivery":
            lines = _deliveries(runs, _ratios(ratios))
        case _:
            lines = _queues(runs, _ratios(ratios))
    return f"{HEADS[name]}\n\n" + "\n".join(lines)


def _ratios(ratios: Sequence[Ratio]) -> Mapping[str, str]:
    # The rig's ratios are of the peers to Tidings.
    return {found.name: f"{1 / found.value:.2f}" for found in ratios if found.value and is_ours(found.base)}


def cpu(run: Run) -> int:
    """Return the microseconds of CPU per unit, of all processes together."""
    return sum(run.cpu_us().values())


def _named(run: Run) -> str:
    return f"{run.title} †" if run.is_marked else run.title


def _queues(runs: Sequence[Run], ratios: Mapping[str, str]) -> list[str]:
    rows = []
    for run in runs:
        enqueued, worked = run.latencies[ENQUEUED], run.latencies[WORKED]
        each = ", ".join(f"{name} {used}" for name, used in run.cpu_us().items())
        row = [_named(run), f"**{run.rate:,.0f}**", ratios.get(run.name, "–"), f"**{cpu(run)}** ({each})"]
        row += [f"{enqueued.p50:.1f} / {enqueued.p99:.1f}", f"{worked.p50:.1f} / {worked.p99:.1f}"]
        rows.append([*row, run.details["repeated"]])
    header = [
        "",
        f"{runs[0].unit}/s",
        "ours to it",
        "CPU µs",
        "enqueued p50 / p99 ms",
        "worked p50 / p99 ms",
        "repeated",
    ]
    notes = [[run.title, run.parameters["durability"], run.parameters["note"]] for run in runs]
    return [*table(header, rows), "", *table(["", "durability", "as used here"], notes, words=3)]


def _deliveries(runs: Sequence[Run], ratios: Mapping[str, str]) -> list[str]:
    rows = []
    for run in runs:
        to_device = run.latencies["at 1,000/s, to the device"]
        ack = run.latencies.get("at 1,000/s, acknowledged")
        row = [_named(run), f"**{run.rate:,.0f}**", ratios.get(run.name, "–")]
        row.append(f"**{servers(run.cpu_us())}**, {run.cpu_us()[delivery.CLIENTS]}")
        row.append(str(servers(run.details["steady_cpu_us"])))
        row += [f"{to_device.p50:.2f} / {to_device.p99:.2f}", f"{ack.p50:.2f} / {ack.p99:.2f}" if ack else "–"]
        rows.append([*row, run.parameters["durability"]])
    header = ["", "most/s", "ours to it", "CPU µs at the most: servers, clients", "servers' at 1,000/s"]
    header += ["at 1,000/s: to the device p50 / p99 ms", "acknowledged p50 / p99 ms", "durability"]
    return table(header, rows)


def servers(used: Mapping[str, int]) -> int:
    """Sum the processes except the one that has the sender and the devices."""
    return sum(each for name, each in used.items() if name != delivery.CLIENTS)


def _published(runs: Sequence[Run]) -> list[str]:
    lines: list[str] = []
    heads = [*(_named(run).removeprefix("table: ") for run in runs)]
    heads += [f"published: {name}" for name in ("MQTT", "WebSockets", "gRPC")]
    for clients in delivery.TABLE_CLIENTS:
        rows = []
        for size in delivery.TABLE_SIZES:
            for messages in delivery.TABLE_MESSAGES:
                key = f"{clients}/{size}/{messages}"
                named = f"{messages} message{'s' if messages > 1 else ''} of {'1.5' if size == 1536 else '4'} KB"
                cells = [f"{run.details['cells'][key]:.2f}" for run in runs]
                rows.append([named, *cells, *(f"{value:,g}" for value in PUBLISHED[key])])
        named = "1 client" if clients == 1 else f"{clients} clients"
        lines += [*table([f"{named}, ms", *heads], rows), ""]
    lines.append(
        "The published figures are of one core with 1 GB for the server; here everything shares the cores. Where the "
        "server itself sends, as in the published test, there is one hop less than where a sender is beside it, and "
        "nothing is kept: that is why gRPC is ahead there."
    )
    return lines


# Seed 002, by clients/bytes/messages: milliseconds of MQTT, WebSockets, gRPC; on one core.
PUBLISHED = {
    "1/1536/1": (9.5, 3.1, 2.7),
    "1/1536/10": (30.6, 11, 9.4),
    "1/1536/100": (128.5, 53, 72.3),
    "1/1536/1000": (674.2, 444.3, 501.2),
    "1/4096/1": (12.7, 5.1, 4),
    "1/4096/10": (25, 15.4, 10.7),
    "1/4096/100": (114.4, 67.8, 71.7),
    "1/4096/1000": (685.1, 511.3, 514.7),
    "100/1536/1": (62.8, 7, 8.6),
    "100/1536/10": (339.6, 55.5, 61.3),
    "100/1536/100": (3155.9, 491, 614.3),
    "100/1536/1000": (31101.9, 4878.5, 6219.4),
    "100/4096/1": (70.2, 10, 10.3),
    "100/4096/10": (354.2, 72, 62.3),
    "100/4096/100": (3274.9, 694.9, 631.1),
    "100/4096/1000": (32833.4, 6910.7, 6391),
}


def versions() -> dict[str, str]:
    """Return the versions of the peers, from their locks and programs."""
    found = {}
    for line in install.LOCK.read_text().splitlines():
        name, _, version = line.partition("==")
        if name in ("saq", "arq", "pgqueuer", "procrastinate"):
            found[name] = version.split()[0]
    for line in (install.GO / "go.mod").read_text().splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] in _MODULES:
            found[_MODULES[words[0]]] = words[1].removeprefix("v")
    for name, command in _PROGRAMS.items():
        with contextlib.suppress(OSError):
            said = subprocess.run(command, capture_output=True, text=True).stdout.replace("v=", "").split()
            found[name] = next((word for word in said if word[:1].isdigit()), "")
    return found


_MODULES = {
    "github.com/centrifugal/centrifuge": "centrifuge",
    "github.com/mochi-mqtt/server/v2": "mochi-mqtt",
    "github.com/nats-io/nats-server/v2": "nats-server",
    "github.com/riverqueue/river": "river",
    "google.golang.org/grpc": "grpc",
}
_PROGRAMS: dict[str, list[str | Path]] = {
    "postgresql": [install.POSTGRESQL / "postgres", "--version"],
    "redis": ["redis-server", "--version"],
    "go": ["go", "env", "GOVERSION"],
}
