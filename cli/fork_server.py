"""Fork server: process that forks children on request, so that they share the memory of all imported modules.

It is forked from its parent before the parent has threads, an event loop or open connections, and never has any itself.
The parent sends it requests over a socket, and it reports the children's process ids and exit statuses. It ends when
the parent closes the socket, that is, also when the parent ends for any reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from cli import guard

# Bytes of a request's length.
_LENGTH = 4
_STATUS_OF_A_DEFECT = 1
# Sent to all processes of a service, of which the server ignores them.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds between two polls for the end of a child that the server has left.
_POLL_SECONDS = 0.05

# Runs a child: gets its pipes, of which each is a descriptor by its name, and returns the exit status.
Main = Callable[[Mapping[str, int]], int]


class ForkServerEnded(guard.CommandFailure):
    """The fork server has ended, so its children's ends can no longer be observed."""


class ForkedProcess:
    """Child of the fork server, with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, server: ForkServer, number: int, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._number = number
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """Wait for its end. Returns the exit status, negative for a signal."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._server.signal(self._number, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._server.signal(self._number, signal.SIGKILL)

    def note_end(self, status: int) -> None:
        """Record that it has ended with this status."""
        self.returncode = status
        self._ended.set()


class ForkServer:
    """The parent's side: sends requests, and receives reports while an event loop runs.

    ended: set when the fork server has ended. Its children then count as killed.
    """

    def __init__(self, control: socket.socket) -> None:
        self.ended = asyncio.Event()
        self._control = control
        self._unread = b""
        self._numbers = 0
        self._starting: dict[int, asyncio.Future[ForkedProcess]] = {}
        self._running: dict[int, ForkedProcess] = {}
        self._is_read = False
        self._left: Sequence[int] = ()  # ids of the children that ran when the server ended

    @classmethod
    def start(cls, main: Main, unused: Sequence[int]) -> ForkServer:
        """Fork the server. Call it while this process has one thread and no event loop. Raises `OSError`.

        unused: descriptors of this process that neither the server nor its children need
        """
        _open_standard_streams()
        ours, theirs = socket.socketpair()
        if os.fork():
            theirs.close()
            return cls(ours)
        ours.close()
        for descriptor in unused:
            os.close(descriptor)
        _run_to_the_end(lambda: _Server(theirs, main).run())

    async def spawn(self, environment: Mapping[str, str], pipes: Mapping[str, int]) -> ForkedProcess:
        """Fork a child, which gets these environment variables alone. Raises `OSError` and `ForkServerEnded`.

        pipes: descriptors that the child gets, by name
        """
        loop = asyncio.get_running_loop()
        if not self._is_read:
            self._is_read = True
            loop.add_reader(self._control, self._read)
        self._numbers += 1
        number = self._numbers
        started: asyncio.Future[ForkedProcess] = loop.create_future()
        self._starting[number] = started
        self._send({"number": number, "environment": dict(environment), "pipes": list(pipes)}, list(pipes.values()))
        return await started

    def signal(self, number: int, signal_number: int) -> None:
        """Send a signal to a child, unless it has ended."""
        with contextlib.suppress(ForkServerEnded):
            self._send({"number": number, "signal": signal_number}, [])

    async def wait_for_left(self, seconds: float) -> None:
        """Wait at most this long for the ends of the children that ran when the server ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(map(_is_running, self._left)):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Let the server end."""
        if self._is_read and not self.ended.is_set():
            asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()

    def _send(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        if self.ended.is_set():
            raise ForkServerEnded("the fork server has ended")
        text = json.dumps(request).encode()
        try:
            socket.send_fds(self._control, [len(text).to_bytes(_LENGTH, "big")], list(descriptors))
            self._control.sendall(text)
        except (BrokenPipeError, ConnectionResetError):
            raise ForkServerEnded("the fork server has ended") from None

    def _read(self) -> None:
        try:
            part = self._control.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            self._lost()
            return
        *lines, self._unread = (self._unread + part).split(b"\n")
        for line in lines:
            self._reported(json.loads(line))

    def _reported(self, report: Mapping[str, int]) -> None:
        number = report["number"]
        if "status" in report:
            self._running.pop(number).note_end(report["status"])
            return
        started = self._starting.pop(number)
        if "error" in report:
            if not started.done():
                started.set_exception(OSError(report["error"], os.strerror(report["error"])))
            return
        process = self._running[number] = ForkedProcess(self, number, report["pid"])
        if started.done():
            # The caller no longer waits for it.
            process.kill()
        else:
            started.set_result(process)

    def _lost(self) -> None:
        asyncio.get_running_loop().remove_reader(self._control)
        self.ended.set()
        for started in self._starting.values():
            if not started.done():
                started.set_exception(ForkServerEnded("the fork server has ended"))
        running, self._running = self._running, {}
        self._left = [process.pid for process in running.values()]
        for process in running.values():
            process.note_end(-signal.SIGKILL)


class _Server:
    """The fork server itself: handles requests and the ends of children, one at a time."""

    def __init__(self, control: socket.socket, main: Main) -> None:
        self._control = control
        self._main = main
        # Process ids by the parent's numbers.
        self._children: dict[int, int] = {}

    def run(self) -> int:
        """Serve until the parent closes the socket."""
        os.setsid()
        with open(os.devnull) as null:
            os.dup2(null.fileno(), 0)
        # Nothing that exists now is scanned in a child, which would copy its pages.
        gc.collect()
        gc.freeze()
        gc.disable()
        # A signal to all processes of a service must not end the server before its children.
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
        self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._ended, self._wakeup = os.pipe()
        os.set_blocking(self._ended, False)
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._control.fileno(), self._ended], [], [])
            if self._ended in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._ended, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._take_request():
                return 0

    def _take_request(self) -> bool:
        """Handle one request; returns whether there was one."""
        head, descriptors, _, _ = socket.recv_fds(self._control, _LENGTH, 8)
        if len(head) < _LENGTH:
            return False
        text = b""
        while len(text) < int.from_bytes(head, "big"):
            part = self._control.recv(int.from_bytes(head, "big") - len(text))
            if not part:
                return False
            text += part
        request = json.loads(text)
        if "signal" not in request:
            self._fork(request["number"], request["environment"], dict(zip(request["pipes"], descriptors, strict=True)))
        elif request["number"] in self._children:
            os.kill(self._children[request["number"]], request["signal"])
        return True

    def _fork(self, number: int, environment: Mapping[str, str], pipes: Mapping[str, int]) -> None:
        # A child gets them when it no longer ignores them.
        signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            pid = os.fork()
        except OSError as error:
            self._report(number=number, error=error.errno or 0)
        else:
            if not pid:
                _run_to_the_end(lambda: self._be_child(environment, pipes))
            self._children[number] = pid
            self._report(number=number, pid=pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
        for descriptor in pipes.values():
            os.close(descriptor)

    def _be_child(self, environment: Mapping[str, str], pipes: Mapping[str, int]) -> int:
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
        self._control.close()
        os.close(self._ended)
        os.close(self._wakeup)
        # Ctrl-C in the terminal must reach only the parent, which stops the children in order.
        os.setsid()
        gc.enable()
        os.environ.clear()
        os.environ.update(environment)
        return self._main(pipes)

    def _reap(self) -> None:
        for number, pid in list(self._children.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self._children[number]
                self._report(number=number, status=os.waitstatus_to_exitcode(status))

    def _report(self, **report: int) -> None:
        # The parent may have ended.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(json.dumps(report).encode() + b"\n")


def _open_standard_streams() -> None:
    """Open those of the descriptors 0 to 2 that are closed, so that no socket gets their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _is_running(pid: int) -> bool:
    """Return whether a process runs. One that has ended may wait for its parent to take its status."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        return not select.select([descriptor], [], [], 0)[0]
    finally:
        os.close(descriptor)


def _run_to_the_end(main: Callable[[], int]) -> NoReturn:
    """End this process with the status that `main` returns. Nothing of the process that forked this one is run."""
    status = _STATUS_OF_A_DEFECT
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
