"""Readings of the kernel about connections."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

# Kernel caches with parts of connections. Caches of other objects change with everything else.
_CACHES = frozenset(
    [
        *("TCP", "TCPv6", "request_sock_TCP", "tw_sock_TCP", "sock_inode_cache", "filp"),
        *("eventpoll_epi", "eventpoll_pwq", "skbuff_head_cache", "skbuff_small_head"),
    ]
)
# Bytes of a socket's directory entry, whose cache is dominated by other files.
_DENTRY = 192
PAGE = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """Readings of the whole machine. Counters start with the machine."""

    sockets: int
    slabs: int  # bytes of the kernel's objects for connections; 0 without root
    buffers: int  # bytes of data in sockets
    overflows: int  # connections refused because of a full backlog
    sent: int  # segments
    received: int  # segments
    repeated: int  # segments


def read_kernel() -> Kernel:
    """Read the present values. Slabs can be read by root only; otherwise they are 0."""
    try:
        slabs = Path("/proc/slabinfo").read_text()
    except PermissionError:
        slabs = ""
    used = 0
    for line in slabs.splitlines()[2:]:
        name, active, _, size, *_ = line.split()
        used += int(active) * int(size) if name in _CACHES else 0
    stat = re.search(r"^TCP: inuse (\d+) .* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    assert stat is not None
    sockets = int(stat[1])
    extended = _counters("/proc/net/netstat", "TcpExt")
    tcp = _counters("/proc/net/snmp", "Tcp")
    return Kernel(
        sockets,
        used + sockets * _DENTRY if used else 0,
        int(stat[2]) * PAGE,
        extended["ListenOverflows"],
        tcp["OutSegs"],
        tcp["InSegs"],
        tcp["RetransSegs"],
    )


def _counters(path: str, group: str) -> dict[str, int]:
    names, values = (line.split()[1:] for line in Path(path).read_text().splitlines() if line.startswith(f"{group}:"))
    return dict(zip(names, map(int, values), strict=True))
