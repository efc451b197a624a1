"""`python -m benchmarks.coreapp_kills`: HTTP statuses of requests while Coreapps are killed under load.

Requests are sent at a steady rate while the owner of the shard is killed, paused (SIGSTOP) or restarted, several times.
Prints the count of each status, the slowest request, and the reconciliation: no message with response 201 may be
missing at its recipient, none with response 503 may be there, and none twice.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.rig import stage
from harness import client
from harness.client import Sent
from harness.installation import Installation
from harness.processes import Process

ROBOTS = 200
KILL, FREEZE, RESTART = "kill", "freeze", "restart"
# Seconds of load before a disruption, and after the time at which the shard must be served again.
BEFORE, AFTER = 3.0, 5.0


def environment(lease: float) -> dict[str, str]:
    return {
        "TIDINGS_MESSAGES_RATE": "0",
        "TIDINGS_CONTACTS_RATE": "0",
        "TIDINGS_ROBOTS_KINDS": "11",
        "TIDINGS_ROBOTS_PER_KIND": str(ROBOTS),
        "TIDINGS_LEASE_SECONDS": str(lease),
    }


async def disrupt(how: str, owner: Process, lease: float) -> None:
    """Disrupt the owner; return when the shard should be served again and the process is back as a standby."""
    if how == RESTART:
        await owner.stop()
        await owner.start()
        return
    if how == FREEZE:
        owner.pause()
    else:
        await owner.kill9()
    await asyncio.sleep(lease + 5)
    if how == FREEZE:
        owner.resume()
    else:
        await owner.start()


async def run_disruptions(installation: Installation, how: str, times: int, rate: float, lease: float) -> list[Sent]:
    business = await installation.business()
    numbers = stage.recipients(ROBOTS, ROBOTS)
    await business.check_contacts(numbers)
    sent: list[Sent] = []
    both = [installation.processes["coreapp"], installation.standby]
    for turn in range(times):
        seconds = BEFORE + AFTER + (5.0 if how == RESTART else lease + 5)
        work = [(numbers[n % ROBOTS], f"Message {n} of {how}{turn}: ") for n in range(int(seconds * rate))]
        loading = asyncio.create_task(client.open_loop(business, work, rate))
        await asyncio.sleep(BEFORE)
        await disrupt(how, both[0 if how == RESTART else turn % 2], lease)
        sent += (await loading).sent
    return sent


async def reconcile(installation: Installation, sent: Sequence[Sent]) -> str:
    """Reconcile accepted messages with received ones; return the result as one line."""
    accepted = {one.request.message_id for one in sent if one.request.accepted}
    refused = {one.request.digest for one in sent if one.request.status == 503}
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        shown = collections.Counter(row.message_id for row in installation.list_shown() if row.attempt == 1)
        missing = accepted - shown.keys()
        if not missing or asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.5)
    texts = {row.digest for row in installation.list_shown()}
    twice = sum(count > 1 for count in collections.Counter(row.digest for row in installation.list_shown()).values())
    return f"missing {len(missing)}, of 503 yet shown {len(refused & texts)}, shown twice {twice}"


async def run(how: str, times: int, rate: float, lease: float) -> None:
    with tempfile.TemporaryDirectory(prefix="tidings-kills-") as directory:
        async with Installation(Path(directory), None, environment(lease)) as installation:
            await installation.start()
            if how != RESTART:
                await installation.standby.start()
            sent = await run_disruptions(installation, how, times, rate, lease)
            statuses = collections.Counter(one.request.status for one in sent)
            slowest = max(one.took for one in sent)
            found = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items(), key=str))
            print(f"{how} x {times} under {rate:g}/s, lease {lease:g} s: {found}; slowest {slowest:.1f} s; ", end="")
            print(await reconcile(installation, sent), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=(KILL, FREEZE, RESTART), action="append")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--rate", type=float, default=45.0)
    parser.add_argument("--lease", type=float, default=30.0)
    given = parser.parse_args()
    for how in given.how or (KILL, FREEZE, RESTART):
        uvloop.run(run(how, given.times, given.rate, given.lease))


if __name__ == "__main__":
    sys.exit(main())
