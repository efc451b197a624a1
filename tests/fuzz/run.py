"""One run of schemathesis against a running system: started, monitored, counted."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.client import PASSWORD
from tests.fuzz.rig import Target

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Requests with methods that the document does not have.
OTHER = "other methods"
# Seconds between two progress lines.
PROGRESS = 20.0
# Seconds that a run may take beyond its time.
TIMEOUT = 120.0


Responses = dict[str, collections.Counter[int]]


@dataclasses.dataclass(frozen=True, slots=True)
class FuzzedApi:
    """One of the APIs: its document, and how schemathesis treats it."""

    name: str
    document: str  # path
    hooks: str  # module of this package
    config: str  # settings of schemathesis, a file of this package


V1 = FuzzedApi("v1", "/openapi.json", "hooks.py", "schemathesis.toml")
CLOUD = FuzzedApi("cloud", "/cloud/openapi.json", "cloud_hooks.py", "cloud.toml")
APIS = {api.name: api for api in (V1, CLOUD)}


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run."""

    passed: bool
    output: str  # schemathesis's output, with a `curl` for each failure
    described: tuple[str, ...]  # operations of the document: method and path template
    responses: Responses  # number of responses by operation and status; other methods are under `OTHER`
    explained: collections.Counter[str]  # number of failures that `beyond` knows, by reason
    broken: collections.Counter[str]  # number of responses that are no JSON, or errors without a code, by operation

    @property
    def cases(self) -> int:
        """Return the number of requests with a response."""
        return sum(responses.total() for responses in self.responses.values())

    def table(self) -> str:
        """Return a line per operation: the number of requests, and the statuses of the responses."""
        lines = [f"{'requests':>8}  {'operation':64} responses"]
        for operation, responses in sorted(self.responses.items(), key=lambda item: item[0].split()[::-1]):
            statuses = ", ".join(f"{status}: {count}" for status, count in sorted(responses.items()))
            lines.append(f"{responses.total():8}  {operation:64} {statuses}")
        lines.append(f"{self.cases:8}  in all")
        lines += [f"{count:8}  explained: {reason}" for reason, count in self.explained.most_common()]
        return "\n".join(lines)


async def fuzz(
    directory: Path,
    target: Target,
    seconds: int,
    arguments: Sequence[str],
    say: Callable[[str], None] | None = None,
    *,
    api: FuzzedApi = V1,
) -> Outcome:
    """Fuzz `target` for at most `seconds`. Raises `TimeoutError` when schemathesis does not end."""
    described = await asyncio.to_thread(_operations, target.url + api.document)
    tally = directory / "tally.txt"
    tally.touch()
    environment = {
        **os.environ,
        "FUZZ_HOOKS": str(HERE / api.hooks),
        "FUZZ_URL": target.url,
        "FUZZ_TOKEN": target.token,
        "FUZZ_PASSWORD": PASSWORD,
        "FUZZ_INBOUND": target.inbound,
        "FUZZ_GROUP": target.group,
        "FUZZ_WEBHOOK": target.webhook,
        "FUZZ_TALLY": str(tally),
        "PYTHONPATH": str(ROOT),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", f"--config-file={HERE / api.config}", "run"),
        *(f"{target.url}{api.document}", "--no-color", f"--max-time={seconds}", *arguments),
        cwd=directory,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    watch = asyncio.create_task(_watch(tally, described, seconds, say)) if say is not None else None
    try:
        async with asyncio.timeout(seconds + TIMEOUT):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    finally:
        if watch is not None:
            watch.cancel()
    responses, told = _read(tally, described)
    return Outcome(
        process.returncode == 0,
        output.decode(errors="replace"),
        described,
        responses,
        explained=told["explained:"],
        broken=told["broken:"],
    )


async def _watch(tally: Path, described: tuple[str, ...], seconds: int, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    while True:
        await asyncio.sleep(PROGRESS)
        responses, _ = _read(tally, described)
        cases = sum(found.total() for found in responses.values())
        failed = sum(count for found in responses.values() for status, count in found.items() if status >= 500)
        tried = sum(map(bool, responses.values()))
        passed = time.monotonic() - begun
        say(f"{passed:4.0f} of {seconds} s: {cases} requests to {tried} operations, {failed} answered 5xx")


def _operations(url: str) -> tuple[str, ...]:
    with urllib.request.urlopen(url, timeout=30) as response:
        paths = json.loads(response.read())["paths"]
    return tuple(f"{method.upper()} {path}" for path, methods in paths.items() for method in methods)


def _read(
    tally: Path, described: tuple[str, ...]
) -> tuple[dict[str, collections.Counter[int]], dict[str, collections.Counter[str]]]:
    """Return the number of responses by operation and status, and the remarks of the hooks by their kind."""
    responses: dict[str, collections.Counter[int]] = {name: collections.Counter() for name in (*described, OTHER)}
    told: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in ("explained:", "broken:")}
    for line in tally.read_text().splitlines():
        what, _, rest = line.partition(" ")
        if what in told:
            told[what][rest] += 1
        else:
            path, _, status = rest.rpartition(" ")
            if status.isdigit():
                name = f"{what} {path}"
                responses[name if name in responses else OTHER][int(status)] += 1
    return responses, told
