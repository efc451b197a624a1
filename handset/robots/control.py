"""Unix socket by which the Webapp of the same data directory acts as the recipients, in test mode."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec

from tidings.wire import recipients
from tidings.wire.recipients import RecipientCall, RecipientFailure, RecipientResponse

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32  # each carries one call; further ones are closed at once
CALL_SECONDS = 30.0  # seconds for the call to arrive, and for its response

# Result of `SO_PEERCRED` in unix(7): process, user and group of the caller.
_PEER = struct.Struct("3i")


class RecipientControl:
    """Service that listens at `recipients.sock` in the data directory. Callers must be of the same user, or root."""

    name = "recipients"

    def __init__(self, directory: Path, respond: Callable[[RecipientCall], Awaitable[RecipientResponse]]) -> None:
        """directory: data directory"""
        self._directory = directory
        self._respond = respond
        self._open = 0

    async def run(self, stop: asyncio.Event) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._listening(descriptor) as listener:
                server = await asyncio.start_unix_server(self._serve, sock=listener, limit=recipients.MAX_LINE)
                async with server:
                    await stop.wait()
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _listening(self, descriptor: int) -> Iterator[socket.socket]:
        """Provide the listening socket. Only one process runs the robots of a directory, so an old one is removed."""
        path = self._directory / recipients.SOCKET
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(recipients.address_of(self._directory, descriptor))
            path.chmod(0o600)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._open >= MAX_CONNECTIONS or not _is_ours(writer):
                return
            self._open += 1
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await self._exchange(reader, writer)
            finally:
                self._open -= 1
        except (TimeoutError, OSError, ValueError) as error:
            log.warning("recipients.call_failed", extra={"error": repr(error)[:200]})
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:
            return
        response: RecipientResponse
        try:
            response = await self._respond(recipients.decode_call(line))
        except msgspec.MsgspecError as error:
            response = RecipientFailure(recipients.REFUSED, f"the call cannot be read: {error}")
        writer.write(recipients.encode(response) + b"\n")
        await writer.drain()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Return whether the caller is a process of this user or of root."""
    connected: socket.socket = writer.get_extra_info("socket")
    _, user, _ = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return user in (0, os.geteuid())
