"""Bare FastAPI: 64 clients post a text message, whose body pydantic validates, and get a 201."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from benchmarks.calibrations import bare
from benchmarks.rig.calibration import RATE, Calibration, CalibrationResources
from benchmarks.rig.run import RunFailed
from harness.client import Business
from harness.http_connection import Connection

_BODY = json.dumps({"to": "15550110001", "type": "text", "text": {"body": "x" * 100}}).encode()


async def calibrate(_ground: CalibrationResources) -> Calibration:
    """Measure the rate of requests. Raises `RunFailed`."""
    async with bare.server("fastapi") as port:
        business = Business(port)
        request = business.request("POST", "/v1/messages", _BODY)
        connections = [await business.connect() for _ in range(bare.CLIENTS)]
        found = await bare.rate([_post(connection, request) for connection in connections])
        for connection in connections:
            connection.close()
    return Calibration(f"bare FastAPI POST, {bare.CLIENTS} clients", found, RATE)


def _post(connection: Connection, request: bytes) -> Callable[[], Awaitable[None]]:
    async def once() -> None:
        status, _ = await connection.request(request)
        if status != 201:
            raise RunFailed(f"the bare FastAPI responded with {status}")

    return once
