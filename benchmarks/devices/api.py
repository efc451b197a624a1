"""Notifications through the whole system: over the API, encrypted, to recipients among many idle connections."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from benchmarks.devices.network import KEY, numbers
from benchmarks.rig import messages, stage, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Session
from harness import client
from harness.client import Sent
from harness.fleet_process import FleetProcess
from harness.light_devices import register

# Recipients, which are robots on shared connections; characters of a text.
ROBOTS, SIZE = 1000, 4000
# Block of numbers that neither the business nor the robots use.
BLOCK = 7
SETTINGS = {
    "TIDINGS_NETWORK_CONNECTIONS": "1000000",
    "TIDINGS_NETWORK_IDLE_S": "7200",
    "TIDINGS_REGISTRATION_KEY": KEY,
    # The measured time ends with the recipient's commit, which must not wait for further messages.
    "TIDINGS_ROBOTS_COMMIT_MS": "0",
}


class _Line(msgspec.Struct):
    number: str
    id: str
    time: float


async def through_api(current: Session, idle: int, rate: float, seconds: float) -> Run:
    """Send texts at a rate, with `idle` connected devices besides the recipients. Raises `RunFailed` and others."""
    async with (
        stage.prepared(current, robots=ROBOTS, environment=SETTINGS) as prepared,
        prepared.performance("api") as scene,
    ):
        fleet = FleetProcess("fleet", current.directory)
        await fleet.start()
        try:
            common = scene.installation.common
            host, _, port = common["TIDINGS_NETWORK_TCP_ADDRESS"].rpartition(":")
            tokens = await register(common["TIDINGS_NETWORK_HTTP_URL"], KEY, numbers(idle, BLOCK))
            await fleet.open(tokens, [(host, int(port))], source="127.9")
            await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS))
            await fleet.request("reset")
            work = [
                (number, f"{index}: ".ljust(SIZE, "."))
                for index, number in enumerate(stage.recipients(ROBOTS, int(rate * seconds)))
            ]
            async with messages.measured(scene, len(work)) as found:
                load = await client.open_loop(scene.business, work, rate)
                found.load.sent.extend(load.sent)
            lost = await fleet.counts()
        finally:
            await fleet.close()
        if lost["attached"] != idle or lost["failures"]:
            raise RunFailed(f"of {idle} idle devices: {lost}")
        name = f"api-{rate:.0f}"
        title = f"{rate:,.0f} texts of 4 KB a second over the API, {idle:,} idle connections"
        run = found.run(name, title, parameters={"idle": idle, "rate": rate, "bytes": SIZE})
        times = accept_to_device(found.load.sent, scene.installation.robots_log)
        return dataclasses.replace(run, latencies={"accept to device": times, **run.latencies})


def accept_to_device(sent: list[Sent], log: Path) -> summary.Summary:
    """Summarise the time from the client's 201 until the recipient has shown the message, in milliseconds."""
    accepted = {one.request.message_id: one.started + one.took for one in sent if one.request.accepted}
    lines = log.read_bytes().splitlines()
    decode = msgspec.json.Decoder(_Line).decode
    shown = [decode(line) for line in lines]
    return summary.summarise([max(0.0, line.time - accepted[line.id]) for line in shown if line.id in accepted])
