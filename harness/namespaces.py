"""Network namespaces with one process each, on a bridge, whose ways to each other can be cut, slowed and made lossy.

Root only. The process that makes them runs in a network of its own (`unshare --net`), so that nothing is left of the
bridge when it ends; `remove` removes the names of the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

# The programs that are needed, and the packages of Debian that bring them.
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
# The address of the process that makes the namespaces.
HUB = "10.99.0.1"


class Namespace:
    """A namespace with one address, which reaches the hub and the other namespaces."""

    def __init__(self, number: int) -> None:
        """number: from 0; other than that of any other namespace of this process."""
        self.name = f"tidings-{os.getpid()}-{number}"
        self.address = f"10.99.0.{10 + number}"
        self._outside = f"outside{number}"

    @property
    def prefix(self) -> Sequence[str]:
        """What a command begins with that is to run inside."""
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
        """Drop what comes from a peer, and what goes to it unless one way is enough.

        match: an expression of nftables with `{end}` for `saddr` of what comes and `daddr` of what goes, and `{port}`
        for `sport` and `dport`.
        """
        self._inside("nft", f"add rule inet faults input {match.format(end='saddr', port='sport')} drop")
        if both_ways:
            self._inside("nft", f"add rule inet faults output {match.format(end='daddr', port='dport')} drop")

    def lose(self, percent: int) -> None:
        """Lose packets at random, in and out."""
        for hook in ("input", "output"):
            self._inside("nft", f"add rule inet faults {hook} numgen random mod 100 < {percent} drop")

    def slow_down(self, rate: str) -> None:
        """Let no more through than a rate like `300kbit`, in and out; up to a second of it waits."""
        shape = ("root", "tbf", "rate", rate, "burst", "5kb", "latency", "1s")
        _run("tc", "qdisc", "replace", "dev", self._outside, *shape)
        self._inside("tc", "qdisc", "replace", "dev", "inside", *shape)

    def mend(self) -> None:
        """End every cut, loss and limit."""
        for hook in ("input", "output"):
            self._inside("nft", f"flush chain inet faults {hook}")
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("tc", "qdisc", "del", "dev", self._outside, "root")
            self._inside("tc", "qdisc", "del", "dev", "inside", "root")

    def remove(self) -> None:
        """Remove it; what runs inside has ended."""
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
