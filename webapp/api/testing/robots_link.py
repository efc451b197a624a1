"""Calls to the process with the robots, over the Unix socket in the data directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from tidings.wire import codes, recipients
from tidings.wire.recipients import RecipientCall, RecipientDone, RecipientFailure, RecipientResponse
from webapp.http.errors import InvalidRequest, Overloaded

CALL_SECONDS = 35.0  # seconds, longer than the robots take to carry out or refuse a call
MAX_CALLS = 16  # calls in progress; further ones wait
_CODES = {recipients.UNKNOWN: codes.NOT_FOUND, recipients.OFFLINE: codes.PARAMETER_INVALID}
_AWAY = "the robots do not run on this data directory with TIDINGS_TESTING=1, or do not respond"


class RobotsLink:
    """Link to the robots. Each call has its own connection."""

    def __init__(self, directory: Path) -> None:
        """directory: data directory"""
        self._directory = directory
        self._slots = asyncio.Semaphore(MAX_CALLS)

    async def call(self, call: RecipientCall) -> RecipientDone:
        """Carry out a call. Raises `InvalidRequest`, and `Overloaded` while the robots cannot carry it out."""
        try:
            async with asyncio.timeout(CALL_SECONDS), self._slots:
                line = await self._exchange(recipients.encode(call) + b"\n")
            response: RecipientResponse = recipients.decode_answer(line)
        except (OSError, ValueError, TimeoutError, msgspec.MsgspecError) as error:
            raise Overloaded(_AWAY) from error
        if isinstance(response, RecipientFailure):
            if response.reason == recipients.AWAY:
                raise Overloaded(response.details)
            raise InvalidRequest.because(_CODES.get(response.reason, codes.PARAMETER_INVALID), response.details)
        return response

    async def _exchange(self, line: bytes) -> bytes:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            address = recipients.address_of(self._directory, descriptor)
            reader, writer = await asyncio.open_unix_connection(address, limit=recipients.MAX_LINE)
        finally:
            os.close(descriptor)
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()
