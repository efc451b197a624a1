"""Bare aiohttp client: posts a status to the benchmarks' webhook, with as many requests in flight as a Coreapp."""

from __future__ import annotations

import json

import aiohttp

from benchmarks.calibrations import bare
from benchmarks.rig.calibration import RATE, Calibration, CalibrationResources
from benchmarks.rig.run import RunFailed
from harness.sink_process import SinkProcess

# Requests in flight: `max_concurrent_requests`.
AT_ONCE = 24
_BODY = json.dumps({"statuses": [{"id": "m1", "status": "sent", "recipient_id": "15550110001"}]}).encode()
_HEADERS = {"Content-Type": "application/json"}


async def calibrate(resources: CalibrationResources) -> Calibration:
    """Measure the rate of posts. Raises `RunFailed`."""
    async with SinkProcess(resources.directory, "") as sink, aiohttp.ClientSession() as http:

        async def once() -> None:
            async with http.post(sink.url, data=_BODY, headers=_HEADERS) as response:
                if response.status != 200:
                    raise RunFailed(f"the webhook responded with {response.status}")

        found = await bare.rate([once] * AT_ONCE)
    return Calibration(f"bare aiohttp POST to the webhook, {AT_ONCE} at a time", found, RATE)
