"""Network namespaces with one process each, on a bridge, whose connections can be cut, slowed and made lossy.

Needs root. The process that makes them runs in a new network namespace (`unshare --net`), so that the bridge
disappears when it ends; `remove` removes the names of the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

# Needed programs, and their Debian packages.
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
# Address of the process that makes the namespaces.
HUB = "10.99.0.1"


class Namespace:
    """Namespace with one address, which reaches the hub and the other namespaces."""

    def __init__(self, number: int) -> None:
        """number: from 0; different for each namespace of this process."""
        self.name = f"tidings-{os.getpid()}-{number}"
        self.address = f"10.99.0.{10 + number}"
        self._outside = f"outside{number}"

    @property
    def prefix(self) -> Sequence[str]:
        """Words before a command that is to run inside."""
        return ("ip", "netns", "exec", self.name)

    def make(self) -> None:
        """Make it, on the bridge of `make_hub`."""
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._outside, "type", "veth", "peer", "name", "inside", "netns", self.name)
        _run("ip", "link", "set", self._outside, "master", "hub", "up")
        self._inside("ip", "address", "add", f"{self.address}/24", "dev", "inside")
        for device in ("lo", "inside"):
            self._inside("ip", "link", "set", device, "up")
        self._inside("nft", "add table inet faults")
        for hook in ("input", "output"):
            self._inside("nft", f"add chain inet faults {hook} {{ type filter hook {hook} priority 0; }}")

    def cut(self, match: str, *, both_ways: bool = True) -> None:
        """Drop packets from a peer, and those to it unless one direction is enough.

        match: nftables expression, with `{end}` for `saddr` of incoming and `daddr` of outgoing packets, and `{port}`
            for `sport` and `dport`.
        """
        self._inside("nft", f"add rule inet faults input {match.format(end='saddr', port='sport')} drop")
        if both_ways:
            self._inside("nft", f"add rule inet faults output {match.format(end='daddr', port='dport')} drop")

    def drop_packets(self, percent: int) -> None:
        """Drop incoming and outgoing packets at random. percent: of all packets."""
        for hook in ("input", "output"):
            self._inside("nft", f"add rule inet faults {hook} numgen random mod 100 < {percent} drop")

    def slow_down(self, rate: str) -> None:
        """Limit the throughput in both directions to a rate like `300kbit`; up to one second of it is queued."""
        shape = ("root", "tbf", "rate", rate, "burst", "5kb", "latency", "1s")
        _run("tc", "qdisc", "replace", "dev", self._outside, *shape)
        self._inside("tc", "qdisc", "replace", "dev", "inside", *shape)

    def heal(self) -> None:
        """Remove all cuts, losses and limits."""
        for hook in ("input", "output"):
            self._inside("nft", f"flush chain inet faults {hook}")
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("tc", "qdisc", "del", "dev", self._outside, "root")
            self._inside("tc", "qdisc", "del", "dev", "inside", "root")

    def remove(self) -> None:
        """Remove it; processes inside must have ended."""
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)

    def _inside(self, *words: str) -> None:
        _run(*self.prefix, *words)


def make_hub() -> None:
    """Make the bridge, with an address of this process on it."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "hub", "type", "bridge")
    _run("ip", "address", "add", f"{HUB}/24", "dev", "hub")
    _run("ip", "link", "set", "hub", "up")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
