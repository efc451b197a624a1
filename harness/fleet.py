"""`python -m harness.fleet`: tens of thousands of devices in one process, each on a separate connection.

The parent sends requests over `--control-fd` (see `control`): `open` connects devices, `send` makes some of them send,
`volley` measures round trips, `counts` and `latencies` return results. Delivered messages are checked: their end, and
that those of each sender arrive in order and once. With several `--control-fd`, a process with devices is forked for
each, which shares the memory of the modules with the others.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import collections
import contextlib
import gc
import itertools
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from harness import control
from harness.fleet_device import STAMP, TAIL, TCP, FleetDevice
from harness.fleet_sending import Senders, Sending
from tidings.wire import device

# Has the kernel choose the local port at connect time, so that one address allows many connections.
_IP_BIND_ADDRESS_NO_PORT = 24
# Seconds that connecting and logging in may take.
LOGIN_SECONDS = 20.0


class Fleet:
    """Devices, and counts of what they received since `do_reset` and `do_latencies`."""

    def __init__(self) -> None:
        self.is_closing = False
        self.devices: dict[str, FleetDevice] = {}
        self.attached_now = self.delivered_now = 0
        self.repeats = self.wrong = self.others = 0
        self.failures: collections.Counter[str] = collections.Counter()
        # Milliseconds from the stamp in each message to its delivery.
        self.times = array.array("f")
        self.senders = Senders()
        self._addresses: list[tuple[str, int]] = []
        self._turn = 0
        self._source = ""
        self._dials = asyncio.Semaphore(1)
        self._logging_in: dict[FleetDevice, asyncio.Future[None]] = {}
        # Numbers of devices that must not reconnect for now.
        self._away: set[str] = set()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    # Callbacks of the devices.

    def attached(self, device: FleetDevice) -> None:
        self._logged_in(device)
        self.attached_now += 1
        self._changed.set()

    def _logged_in(self, device: FleetDevice) -> None:
        """Record that a login has succeeded or that its connection is lost."""
        done = self._logging_in.pop(device, None)
        if done is not None and not done.done():
            done.set_result(None)

    def lost(self, device: FleetDevice) -> None:
        self._logged_in(device)
        if device.is_attached:
            device.is_attached = False
        if not self.is_closing and device.number not in self._away:
            self._start(self._reconnect(device))

    def delivered(self, receiver: FleetDevice, frame: device.Deliver) -> None:
        data = frame.body
        if frame.kind not in (device.MESSAGE, device.GROUP):
            self.others += 1
            self.delivered_now += 1
            if frame.kind == device.ANNOUNCEMENT and data[:1] == b"@":
                # Text of an operator: `@` and nanoseconds in digits.
                self.times.append((time.monotonic_ns() - int(data[1:21])) / 1e6)
            return
        stamp, number = STAMP.unpack_from(data)
        self.times.append((time.monotonic_ns() - stamp) / 1e6)
        self.delivered_now += 1
        if number <= receiver.highest:
            self.repeats += 1
        else:
            receiver.highest = number
        if not data.endswith(TAIL):
            self.wrong += 1

    def settled(self, sender: FleetDevice, frame: device.Accepted | device.Refused) -> None:
        self.senders.settled(sender.number, frame)

    def failed(self, device: FleetDevice, reason: str) -> None:
        self.failures[reason] += 1

    # Connections.

    async def open(
        self,
        devices: Sequence[tuple[str, str]],
        addresses: Sequence[tuple[str, int]],
        *,
        transport: str = TCP,
        dials: int = 64,
        source: str = "",
        seconds: float = 600.0,
    ) -> dict[str, Any]:
        """Connect these devices and wait until all of them are logged in.

        devices: (number, token).
        dials: connections that may be open without a login.
        source: first two bytes of their local addresses, one address per device; empty for this machine's address.
        """
        self._addresses = [(host, port) for host, port in addresses]
        self._source = source
        self._dials = asyncio.Semaphore(dials)
        began, before = time.monotonic(), self.attached_now
        for number, token in devices:
            each = self.devices[number] = FleetDevice(self, number, token, transport)
            self._start(self._dial(each, len(self.devices)))
        await self.until(lambda: self.attached_now >= before + len(devices), seconds)
        return {"seconds": time.monotonic() - began, "attached": self.attached_now}

    async def _dial(self, each: FleetDevice, index: int = 0) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_closing:
            self._turn += 1
            address = self._addresses[self._turn % len(self._addresses)]
            index = index or 1 + hash(each.number) % 60_000
            try:
                async with self._dials, asyncio.timeout(LOGIN_SECONDS):
                    ours = self._open_socket(index)
                    await loop.sock_connect(ours, address)
                    done = self._logging_in[each] = loop.create_future()
                    await loop.create_connection(lambda: each, sock=ours)
                    await done
                    return
            except (OSError, TimeoutError) as error:
                self._logging_in.pop(each, None)
                if each.is_connected:
                    # It reconnects through `lost`.
                    each.close()
                    return
                self.failures[f"connect: {type(error).__name__} {getattr(error, 'errno', '')}"] += 1
            await asyncio.sleep(each.wait())

    def _open_socket(self, index: int) -> socket.socket:
        ours = socket.socket()
        ours.setblocking(False)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._source:
            ours.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            ours.bind((f"{self._source}.{index >> 8 & 255}.{index & 255}", 0))
        return ours

    async def _reconnect(self, each: FleetDevice) -> None:
        await asyncio.sleep(each.wait())
        await self._dial(each)

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # Requests of the parent.

    async def respond(self, request: dict[str, Any]) -> Any:
        """Carry out one request and return its response."""
        method: Callable[..., Awaitable[Any]] = getattr(self, f"do_{request.pop('do')}")
        return await method(**request)

    async def do_open(self, **details: Any) -> dict[str, Any]:
        opened = await self.open(**details)
        # Devices live until the end: exclude them from garbage collection.
        gc.collect()
        gc.freeze()
        return opened

    async def do_counts(self) -> dict[str, Any]:
        """Return `attached` now, and `delivered`, `repeats`, `wrong` (bodies), `others` (kinds) since `do_reset`."""
        return {
            "attached": sum(each.is_attached for each in self.devices.values()),
            "delivered": self.delivered_now,
            "repeats": self.repeats,
            "wrong": self.wrong,
            "others": self.others,
            "failures": dict(self.failures),
        }

    async def do_pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    async def do_reset(self) -> None:
        """Reset the counts and latencies."""
        self.delivered_now = self.repeats = self.wrong = self.others = 0
        self.failures.clear()
        self.times = array.array("f")
        for each in self.devices.values():
            each.highest = 0

    async def do_latencies(self, path: str) -> int:
        """Write the latencies into a file, milliseconds as 32-bit floats; returns their number."""
        times, self.times = self.times, array.array("f")
        await asyncio.to_thread(Path(path).write_bytes, times.tobytes())
        return len(times)

    async def do_until_attached(self, count: int, seconds: float) -> float:
        """Wait until `count` devices are logged in, polling 100 times a second; returns monotonic seconds then."""
        async with asyncio.timeout(seconds):
            while sum(each.is_attached for each in self.devices.values()) < count:  # noqa: ASYNC110 (one by one)
                await asyncio.sleep(0.01)
        return time.monotonic()

    async def do_keep_alive(self, period: int) -> None:
        """Have every device, also later ones, send a ping once per `period` seconds from now on."""
        self._start(self._keep_alive(period))

    async def _keep_alive(self, period: int) -> None:
        for second in itertools.count():
            for each in list(self.devices.values())[second % period :: period]:
                if each.is_attached:
                    each.write(device.Ping())
            await asyncio.sleep(1.0)

    async def do_until_delivered(self, count: int, seconds: float) -> dict[str, Any]:
        """Wait for `count` deliveries since `do_reset`, for at most `seconds`; returns the counts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.delivered_now < count:  # noqa: ASYNC110 (one by one)
                    await asyncio.sleep(0.02)
        return await self.do_counts()

    async def do_until_fewer(self, count: int, seconds: float) -> None:
        """Wait until fewer than `count` devices are logged in."""
        async with asyncio.timeout(seconds):
            while sum(each.is_attached for each in self.devices.values()) >= count:  # noqa: ASYNC110 (one by one)
                await asyncio.sleep(0.01)

    async def do_addresses(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Set the addresses to which devices connect from now on."""
        self._addresses = [(host, port) for host, port in addresses]

    async def do_send(self, **details: Any) -> dict[str, Any]:
        """Send at a rate; see `Sending`."""
        return await Sending(self.devices, self.senders, **details).run()

    async def do_volley(self, pairs: Sequence[tuple[str, str]], messages: int, size: int, samples: int) -> list[float]:
        """Make each sender send `messages` messages to its recipient at once and wait until all are acknowledged.

        Returns the seconds of each cycle of each pair, including the time to make bodies and read responses.

        samples: cycles per pair.
        """

        async def cycle(sender: str, to: str) -> float:
            began = time.monotonic()
            sending = Sending(self.devices, self.senders, routes=[(sender, to)], rate=0, count=messages, size=size)
            await sending.run()
            if sending.refused:
                raise RuntimeError(f"refused: {dict(sending.refused)}")
            return time.monotonic() - began

        found: list[float] = []
        for _ in range(samples):
            found += await asyncio.gather(*(cycle(sender, to) for sender, to in pairs))
        return found

    async def do_disconnect(self, numbers: Sequence[str]) -> None:
        """Close the connections of these devices, until `do_reconnect`."""
        self._away.update(numbers)
        for number in numbers:
            self.devices[number].close()

    async def do_reconnect(self) -> None:
        """Reconnect the devices of `do_disconnect`."""
        away, self._away = self._away, set()
        for number in away:
            self._start(self._dial(self.devices[number]))

    async def do_close(self) -> None:
        self.is_closing = True
        for each in self.devices.values():
            each.close()
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def main(control_fd: int) -> None:
    gc.set_threshold(100_000, 50, 100)
    fleet = Fleet()
    await control.serve(control_fd, fleet.respond)
    await fleet.do_close()


def fork(descriptors: Sequence[int]) -> int | None:
    """Fork a process for each descriptor, and return it there. Wait for their ends in this one, and return `None`."""
    gc.collect()
    gc.freeze()
    for index, descriptor in enumerate(descriptors):
        if not os.fork():
            for other in descriptors[index + 1 :]:
                os.close(other)
            return descriptor
        os.close(descriptor)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int, required=True, action="append")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    given = parser.parse_args().control_fd
    own = given[0] if len(given) == 1 else fork(given)
    if own is not None:
        uvloop.run(main(own))
