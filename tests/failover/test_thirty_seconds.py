"""Half a minute without the database, without Redis, without the network, on a cluster under load: the API responds,
readiness fails and returns, and accepted messages arrive once."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from harness.cluster import Cluster, ProcessCounts
from harness.installation import keep_logs
from harness.mariadb import MariaDB
from harness.redis_server import RedisServer
from harness.sink_process import SinkProcess
from tests.crash import table
from tests.crash.disruptions import until
from tests.crash.scene import ENVIRONMENT, READING, SLOWER, Phase, Scene, recovery_seconds, usual_seconds

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SHAPE = ProcessCounts(webapps=2, coreapps=3, networks=2, shards=2)
# Both cases occur in an outage of the database: owners that wait for it, and shards without an owner.
LEASE = 10.0
# Messages and contacts calls per second.
RATE, CHECKS = 50.0, 4.0
# Seconds of load before the stop, during it, and after the restart.
BEFORE, AWAY, AFTER = 5.0, 30.0, 15.0
# Maximum seconds for a response, until readiness fails, until it returns, and until all three callbacks of a new
# message have arrived. Each may be exceeded by `SLOWER` times what the same took before the stop, in the same run:
# other programs on the machine delay it, too.
HANG, TURN, RETURN, RECOVERY = 5.0, 10.0, 15.0, 30.0
# Seconds after a stop of the database in which a Coreapp takes messages, which then wait behind the commit that hangs.
# Each of them may be committed when the database is back, so its outcome is unknown.
UNNOTICED = 2.0
POLL_SECONDS = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """Response to one request."""

    what: str
    status: int | None  # None for no response
    started: float  # Unix seconds
    took: float  # seconds


class Watch:
    """Poller of the readiness of Webapps and network nodes, and of contacts."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self._webapps = [f"http://127.0.0.1:{port}" for port in cluster.api_ports]
        self._nodes = [cluster.metrics_urls[name].removesuffix("/metrics") for name in cluster.process_names("network")]
        self._token = token
        self._tasks: list[asyncio.Task[None]] = []
        # By URL: (time of the request, whether it was ready), in order.
        self._ready: dict[str, list[tuple[float, bool]]] = collections.defaultdict(list)
        self.responses: list[Response] = []

    async def __aenter__(self) -> Watch:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        for number, url in enumerate([*self._webapps, *self._nodes]):
            self._tasks.append(asyncio.create_task(self._poll(url, is_webapp=number < len(self._webapps))))
        self._tasks.append(asyncio.create_task(self._check()))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.close()

    async def returned(self, since: float) -> None:
        """Wait until every process has been ready at a time after `since`."""
        async with asyncio.timeout(RETURN + 30):
            while not all(at > since and ready for at, ready in self._latest()):  # noqa: ASYNC110 (they are asked)
                await asyncio.sleep(POLL_SECONDS)

    def _latest(self) -> Sequence[tuple[float, bool]]:
        return [self._ready[url][-1] for url in (*self._webapps, *self._nodes)]

    def webapps_turned(self, since: float) -> Sequence[float]:
        """Return the seconds until the first failed readiness of each Webapp that failed."""
        return self._first(self._webapps, since, ready=False)

    def nodes_turned(self, since: float) -> Sequence[float]:
        """Return the seconds until the first failed readiness of each network node that failed."""
        return self._first(self._nodes, since, ready=False)

    def webapps_returned(self, since: float) -> Sequence[float]:
        """Return the seconds until lasting readiness of each Webapp that is ready again."""
        return self._last(self._webapps, since)

    def nodes_returned(self, since: float) -> Sequence[float]:
        """Return the seconds until lasting readiness of each network node that is ready again."""
        return self._last(self._nodes, since)

    def _first(self, urls: Sequence[str], since: float, *, ready: bool) -> Sequence[float]:
        found = []
        for url in urls:
            polls = [at for at, was_ready in self._ready[url] if at >= since and was_ready == ready]
            found += polls[:1]
        return [at - since for at in found]

    def _last(self, urls: Sequence[str], since: float) -> Sequence[float]:
        found: list[float] = []
        for url in urls:
            away = max((at for at, was_ready in self._ready[url] if not was_ready), default=since)
            found += [at - since for at, was_ready in self._ready[url] if was_ready and at > max(away, since)][:1]
        return found

    async def _poll(self, url: str, *, is_webapp: bool) -> None:
        while True:
            wall, started = time.time(), time.perf_counter()
            status = await self._request("GET", url + "/health/ready")
            took = time.perf_counter() - started
            self._ready[url].append((wall + took, status == 200))
            if is_webapp:
                self.responses.append(Response("readiness", status, wall, took))
            await asyncio.sleep(POLL_SECONDS)

    async def _check(self) -> None:
        """Check known contacts and a new one, at the Webapps in round robin."""
        async with asyncio.TaskGroup() as group:
            for count in range(1_000_000):
                group.create_task(self._check_one(count))
                await asyncio.sleep(1 / CHECKS)

    async def _check_one(self, count: int) -> None:
        contacts = [f"+{READING}{count % 60:04d}", f"+1555999{count % 10_000:04d}"]
        body = {"blocking": "wait", "contacts": contacts}
        wall, started = time.time(), time.perf_counter()
        status = await self._request("POST", self._webapps[count % len(self._webapps)] + "/v1/contacts", body)
        self.responses.append(Response("contacts", status, wall, time.perf_counter() - started))

    async def _request(self, method: str, url: str, body: object = None) -> int | None:
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with self._http.request(method, url, json=body, headers=headers) as response:
                await response.read()
                return response.status
        except (aiohttp.ClientError, TimeoutError):
            return None


@dataclasses.dataclass
class Outage:
    """Outage of one part for half a minute."""

    what: str
    stop: Callable[[], Awaitable[object]]
    start: Callable[[], Awaitable[object]]
    webapps: bool  # whether their readiness must report it
    nodes: bool  # whether their readiness must report it
    doubtful: bool  # whether messages may be under way to it, so that their outcome is unknown
    watch: Watch | None = None
    back_at: float = 0.0  # Unix seconds of the restart

    async def prepare(self, scene: Scene) -> None:
        pass

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        assert self.watch is not None
        await until(time.monotonic() + BEFORE)
        phase.trouble()
        await self.stop()
        await until(time.monotonic() + AWAY)
        await self.start()
        self.back_at = time.time()
        await self.watch.returned(self.back_at)


def outages(what: str, cluster: Cluster) -> Sequence[Outage]:
    """Return two outages of a part: killed and restarted, then paused and resumed."""
    mariadb, redis = cluster.mariadb, cluster.redis
    assert mariadb is not None
    assert redis is not None
    nodes = [cluster.processes[name] for name in cluster.process_names("network")]

    def in_a_thread(*calls: Callable[[], object]) -> Callable[[], Awaitable[object]]:
        return lambda: asyncio.gather(*[asyncio.to_thread(call) for call in calls])

    async def kill() -> None:
        await asyncio.gather(*[node.kill9() for node in nodes])

    async def start() -> None:
        await asyncio.gather(*[node.start() for node in nodes])

    # Without the database or the network no message can be sent. Without Redis every node serves its attached devices
    # and stores the rest, so a message is still accepted and sent. A load balancer in front of the nodes should know,
    # however.
    turns = {"database": (True, True), "Redis": (False, True), "network": (True, False)}[what]
    steps: dict[str, tuple[Callable[[], Awaitable[object]], ...]] = {
        "database": tuple(map(in_a_thread, (mariadb.kill9, mariadb.start, mariadb.pause, mariadb.resume))),
        "Redis": tuple(map(in_a_thread, (redis.kill9, redis.start, redis.pause, redis.resume))),
        "network": (
            kill,
            start,
            in_a_thread(*[node.pause for node in nodes]),
            in_a_thread(*[node.resume for node in nodes]),
        ),
    }
    killed, started, paused, resumed = steps[what]
    return [
        Outage(f"{what} killed, back after {AWAY:g} s", killed, started, *turns, what == "database"),
        Outage(f"{what} stands still for {AWAY:g} s", paused, resumed, *turns, what == "database"),
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Result of one outage: a row of the report, and its problems."""

    row: Sequence[str]
    problems: Sequence[str]


HEAD = (
    *("outage", "messages", "201", "503", "429", "in doubt", "contacts", "200", "503"),
    *("longest response s", "readiness turns s", "returns s", "nodes turn s", "return s", "recovery s"),
)


def judge(outage: Outage, phase: Phase, scene: Scene) -> Finding:
    """Judge one outage, except for losses."""
    watch = outage.watch
    assert watch is not None
    (stopped,) = phase.troubles
    messages = [Response("message", sent.request.status, sent.started, sent.took) for sent in phase.sent]
    responses = [*messages, *watch.responses]
    problems = []
    slack = SLOWER * max(response.took for response in responses if response.started + response.took < stopped)
    hang = HANG + slack
    slowest = max(responses, key=lambda response: response.took)
    if slowest.took >= hang:
        late = sum(response.took >= hang for response in responses)
        problems.append(
            f"{late} responses took {hang:.1f} s or longer, of {slowest.what} {slowest.took:.2f} s"
            f" (status {slowest.status}, {slowest.started - stopped:+.1f} s)"
        )
    for response in responses:
        if response.status == 500 and not (outage.doubtful and _is_doubtful(response, stopped, slack)):
            problems.append(f"{response.what}: 500 at {response.started - stopped:+.1f} s after {response.took:.1f} s")
    strange = [a for a in responses if a.status is None or not (a.status < 300 or a.status in (429, 500, 503))]
    problems += [f"{response.what}: {response.status} at {response.started - stopped:+.1f} s" for response in strange]
    problems += _judge_readiness(outage, watch, stopped, slack)
    recovery = recovery_seconds(phase, scene)
    # Time for a message sent after the start of the outage, so it includes the outage itself.
    if recovery is None or recovery > AWAY + RECOVERY + SLOWER * usual_seconds(phase, scene):
        problems.append(f"recovery after {recovery} s")
    contacts = [response for response in watch.responses if response.what == "contacts"]
    row = [
        outage.what,
        *_counts(messages, (201, 503, 429, 500)),
        *_counts(contacts, (200, 503)),
        f"{slowest.took:.2f}",
        _longest(watch.webapps_turned(stopped)),
        _longest(watch.webapps_returned(outage.back_at) if outage.webapps else ()),
        _longest(watch.nodes_turned(stopped)),
        _longest(watch.nodes_returned(outage.back_at) if outage.nodes else ()),
        "–" if recovery is None else f"{recovery:.1f}",
    ]
    return Finding(row, [f"{outage.what}: {problem}" for problem in problems[:12]])


def _is_doubtful(response: Response, stopped: float, slack: float) -> bool:
    """Return whether the outcome of a request is unknown: a message whose hand-over to its Coreapp was under way.

    slack: seconds that this machine needs for a request without an outage, at most.
    """
    is_under_way = response.started + response.took > stopped and response.started - stopped < UNNOTICED + slack
    return response.what == "message" and is_under_way


def _judge_readiness(outage: Outage, watch: Watch, stopped: float, slack: float) -> Iterator[str]:
    """slack: seconds that this machine needs for a request without an outage, at most."""
    turned, returned = watch.webapps_turned(stopped), watch.webapps_returned(outage.back_at)
    if outage.webapps and (len(turned) < SHAPE.webapps or max(turned) > TURN + slack):
        yield f"readiness of Webapps turned after {turned} s"
    if not outage.webapps and turned:
        yield f"Webapps were not ready after {turned} s, though they could send"
    if len(returned) < SHAPE.webapps or max(returned) > RETURN + slack:
        yield f"readiness of Webapps returned after {returned} s"
    turned, returned = watch.nodes_turned(stopped), watch.nodes_returned(outage.back_at)
    if outage.nodes and (len(turned) < SHAPE.networks or max(turned) > TURN + slack):
        yield f"readiness of network nodes turned after {turned} s"
    if len(returned) < SHAPE.networks or max(returned) > RETURN + slack:
        yield f"readiness of network nodes returned after {returned} s"


def _counts(responses: Sequence[Response], statuses: Sequence[int]) -> Sequence[str]:
    found = collections.Counter(response.status for response in responses)
    return [str(len(responses)), *[str(found[status]) for status in statuses]]


def _longest(seconds: Sequence[float]) -> str:
    return f"{max(seconds):.1f}" if seconds else "–"


class Report:
    """Results of all outages, written to a file once all three parts were tested."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Sequence[Finding], str]] = {}

    def add(self, what: str, findings: Sequence[Finding], balance: str) -> None:
        self._parts[what] = findings, balance

    def write(self) -> None:
        """Write the report. Nothing is written when a part was not tested."""
        if len(self._parts) < len(STOPPED):
            return
        date = datetime.date.today().isoformat()
        rows = [HEAD, ["---", *["--:"] * (len(HEAD) - 1)]]
        rows += [finding.row for findings, _ in self._parts.values() for finding in findings]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        problems = [problem for findings, _ in self._parts.values() for f in findings for problem in f.problems]
        balances = "\n\n".join(balance for _, balance in self._parts.values())
        (RESULTS / f"{date}-thirty-seconds.md").write_text(
            f"# Half a minute without the database, Redis, the network, {date}\n\n"
            f"Taken by `make test-failover`: {RATE:g} messages a second to robots, and {CHECKS:g} contacts calls, on "
            f"{SHAPE.webapps} Webapps, {SHAPE.coreapps} Coreapps with {SHAPE.shards} shards, {SHAPE.networks} network "
            f"nodes, MariaDB and Redis, everything on one machine; heartbeats of {LEASE / 6:.1f} s, take-over "
            f"{LEASE:g} s. Each is killed and started again, and then stands still (SIGSTOP).\n\n"
            + "\n".join(lines)
            + f"\n\nin doubt: 500/1014, of messages that were in flight then. longest response: of messages, "
            "contacts and readiness. readiness: of the Webapps, from the stop, and from the moment that it is "
            "back; of network nodes likewise. Without Redis messages are sent as ever, so that Webapps stay ready. "
            f"recovery: from the stop to all three callbacks of a message sent after it.\n\n{balances}\n\n"
            f"{table.NOTES}\n\n{chr(10).join(problems) or 'The ledger balances.'}\n"
        )


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    made = Report()
    yield made
    made.write()


STOPPED = ("database", "Redis", "network")


@pytest.mark.whole_system
@pytest.mark.parametrize("what", STOPPED)
async def test_thirty_seconds_without_a_dependency_cost_only_delay(
    what: str, tmp_path: Path, report: Report, request: pytest.FixtureRequest
) -> None:
    mariadb, redis = MariaDB(flush_log=1, buffer_pool_mb=256), RedisServer()
    findings = []
    settled = True
    try:
        mariadb.start()
        redis.start()
        environment = ENVIRONMENT | {"TIDINGS_LEASE_SECONDS": str(LEASE)}
        async with (
            Cluster(tmp_path, mariadb, redis, environment, shape=SHAPE) as cluster,
            SinkProcess(tmp_path, cluster.webhook_secret, verify_every=1) as sink,
        ):
            await cluster.start()
            scene = Scene(cluster, sink, await cluster.business(), random.Random(what))
            await scene.open()
            try:
                for outage in outages(what, cluster):
                    async with Watch(cluster, scene.business.token) as outage.watch:
                        messages = int(RATE * (BEFORE + AWAY + AFTER) / 0.9)
                        await scene.play(outage.what, messages, RATE, outage)
                    settled &= await scene.settle()
                    findings.append(judge(outage, scene.phases[-1], scene))
                    print(f"  {' '.join(findings[-1].row)}{'' if settled else ', NOT SETTLED'}", flush=True)
            finally:
                if keep := request.config.getoption("--keep", None):
                    keep_logs(tmp_path, Path(keep) / what)
    finally:
        redis.remove()
        mariadb.remove()
    problems = [*table.problems(scene, settled=settled), *[line for finding in findings for line in finding.problems]]
    report.add(what, findings, table.markdown(scene))
    assert not problems, "\n" + "\n".join(problems)
