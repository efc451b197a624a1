"""Verdict on a run: beyond schemathesis's own checks, every operation was tried and every process still runs."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from harness import processes
from tests.fuzz.rig import API_KEY, Target
from tests.fuzz.run import Outcome

# Maximum bytes of memory that a process may have held.
MEMORY = 512 * 2**20
# No described request can succeed here. `tests/webapp` tests those that do.
NEVER_TAKEN = frozenset(
    {
        "POST /v1/certificates/external",  # a key with its chain
        "GET /v1/certificates/external/ca",  # exists only after an upload; this system speaks HTTP
        "POST /{phone-number-id}/whatsapp_business_encryption",  # a public key
        "GET /{phone-number-id}/message_qrdls/{code}",  # the code of an earlier call
        "DELETE /{phone-number-id}/message_qrdls/{code}",
        "GET /{upload-id}",  # the session of an earlier call
        "POST /{upload-id}",
    }
)


async def complaints(target: Target, outcome: Outcome) -> list[str]:
    """Return the problems; empty for a good run."""
    found = [] if outcome.passed else ["schemathesis found failures"]
    found += [f"{operation}: {count} responses without JSON or a code" for operation, count in outcome.broken.items()]
    found += [f"{operation} was not tried" for operation in outcome.described if not outcome.responses[operation]]
    running = target.installation.pids()
    found += [f"{name} is gone" for name in target.installation.processes if name not in running]
    if not any(name == "webapp" for name in running):
        return found
    health = _get(target, "/v1/health")["health"]
    if health.get("gateway_status") != "connected":
        found.append(f"health says {health}")
    found += [f"{name} has held {peak / 2**20:.0f} MiB" for name, peak in peaks(target).items() if peak > MEMORY]
    for name, process in target.installation.processes.items():
        if "Traceback" in process.log_path.read_text(errors="replace"):
            found.append(f"{name} has written a traceback into its log")
    return found


def peaks(target: Target) -> dict[str, int]:
    """Return the peak memory of each process, in bytes."""
    return {name: processes.usage(pid).peak_rss for name, pid in target.installation.pids().items()}


def never_taken(outcome: Outcome) -> list[str]:
    """Return the operations that never succeeded, but should have: their schemas, examples or links are wrong."""
    return [
        operation
        for operation in outcome.described
        if operation not in NEVER_TAKEN and not any(200 <= status < 300 for status in outcome.responses[operation])
    ]


def _get(target: Target, path: str) -> Any:
    request = urllib.request.Request(target.url + path, headers={"Authorization": f"Apikey {API_KEY}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())
