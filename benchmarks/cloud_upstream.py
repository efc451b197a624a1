"""Messages of v1 through the Cloud API behind: `python -m benchmarks.cloud_upstream [--quick] [--only RUN]`.

*pair*: v1 at A, which sends through the Cloud API of B, to a robot, with three statuses at A's webhook. *sink-1ms* and
*sink-150ms*: A alone, whose Cloud API is a bare HTTP server that responds after 1 and after 150 ms. *rate-1ms* and
*rate-150ms*: the same at a number of 1,000 messages per second. *drain*: a queue at
a number of 80 messages per second. *webhooks*: the Cloud API's statuses at 240 posts per second. Fails beyond its
limits, unless --quick.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import hashlib
import hmac
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks import calibrations
from benchmarks.rig import contents, messages, session, stage, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.sampler import Sampler, Samples
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene
from harness import client, graph_sink, installation, ledger
from harness.client import Business, Load, Message, Sent
from harness.cloud_client import ACCOUNT
from harness.cloud_pair import CloudPair
from harness.cloud_sender import PROCESSES, CloudSender, printed_field
from harness.graph_process import GraphProcess, Posts
from harness.http_connection import Connection
from harness.installation import Installation
from harness.sink_process import SinkProcess

CLIENTS = 64
UNLIMITED = {"TIDINGS_MESSAGES_RATE": "0", "TIDINGS_CONTACTS_RATE": "0"}
APP_SECRET = "0123456789abcdef0123456789abcdef"
PLENTY = 10_000  # messages per second of a number that no run reaches; the command allows the Cloud API's 1,000
# Messages, and the same with --quick.
PAIR, PAIR_QUICK = 6_000, 300
SINK, SINK_QUICK = 10_000, 500
DRAIN, DRAIN_QUICK = 100_000, 1_200
WEBHOOKS, WEBHOOKS_QUICK = 4_800, 400
ROBOTS, ROBOTS_QUICK = 1_000, 60
DRAIN_RECIPIENTS = 10_000
# Limits.
LEAST_PAIR, LEAST_SINK = 300.0, 1_000.0  # messages per second
LEAST_SLOW = 0.9  # rate with responses of 150 ms, relative to 1 ms, at a number of `HIGHEST_RATE`
HIGHEST_RATE = 1_000  # messages per second, to which the Cloud API raises a number
NUMBER_RATE, MOST_OFF = 80, 0.02  # messages per second of the number, and the tolerated part of it
POST_RATE, MOST_P99 = 240.0, 250.0  # posts per second, and milliseconds
POST_CONNECTIONS = 64  # more than 250 ms need at that rate
STATUSES = ("sent", "delivered", "read")
HOW = """\
Taken by `make bench-cloud_upstream` (`python -m benchmarks.cloud_upstream`), MariaDB, texts of 100 bytes. Pair pacing
is off except in *drain*. In *pair* and *sink* the number's rate is set beyond the Cloud API's 1,000 messages per
second, and in *rate* to it. *pair*: installations A and B and their database on one machine, 64 clients of v1 at A
that wait for each response, 1,000 recipients at B; a message is done when A's webhook has its three statuses, and
each run reconciles messages accepted, shown at B and reported at A. In the tables, `webapp` and `coreapp` are A's,
`webapp2`, `coreapp2`, `network2` and `robots2` B's. *sink*: A alone; its Cloud API is a bare HTTP server that responds
after 1 or 150 ms, and a message is done when it is posted there; rounds alternate. At most 256 posts of a number are
in flight, so with 150 ms it sends at most 1,707 messages per second. *drain*: a number of 80 messages per second and
a server that refuses more with 130429; the rate counts from the end of the load. *webhooks*: signed posts of one
status each at 240 per second, to messages of A that the server has accepted, while A accepts and posts 80 more
messages per second; latency of a post until its 200."""


@dataclasses.dataclass(frozen=True, slots=True)
class PairedScene(Scene):
    """Scene whose business is at A, and whose recipients are at B."""

    pair: CloudPair = dataclasses.field(kw_only=True)

    @property
    def recipients(self) -> Installation:
        return self.pair.b

    def list_shown(self, since: int) -> list[ledger.Shown]:
        return self.pair.list_shown(since)

    def sampler(self) -> Sampler:
        b = self.pair.b
        return Sampler(
            lambda: {
                **{f"{name}2": pid for name, pid in b.pids().items() if name in b.processes},
                **self.installation.pids(),
                "sink": self.sink.pid,
            },
            metrics=lambda: self.installation.metrics() | {f"{name}2": text for name, text in b.metrics().items()},
            mariadb=b.mariadb,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class AloneScene(Scene):
    """Scene with A alone, and the bare server in place of the Cloud API."""

    graph: GraphProcess = dataclasses.field(kw_only=True)
    callback: str = dataclasses.field(kw_only=True)  # path to which the Cloud API posts events
    phone_number_id: str = dataclasses.field(kw_only=True)


@contextlib.asynccontextmanager
async def paired(current: Session, name: str) -> AsyncIterator[PairedScene]:
    """Run A and B from a fresh state, and stop them at the end."""
    directory = await _fresh(current, name)
    robots = {"TIDINGS_ROBOTS_KINDS": "11", "TIDINGS_ROBOTS_PER_KIND": str(_robots(current))}
    async with CloudPair(
        directory, a=UNLIMITED, b={**UNLIMITED, **robots}, rate=PLENTY, mariadb=await current.database()
    ) as pair:
        try:
            business = await pair.start()
            async with SinkProcess(directory, pair.a.webhook_secret) as sink:
                await business.set_webhook(sink.url)
                yield PairedScene(pair.a, business, sink, pair=pair)
        finally:
            _keep_logs(current, name, pair.a, pair.b)


@contextlib.asynccontextmanager
async def alone(
    current: Session,
    name: str,
    *,
    delay: float = 0.001,
    rate: int = PLENTY,
    limit: float = 0.0,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[AloneScene]:
    """Run A from a fresh state, with the bare server, and stop both at the end.

    delay: seconds until the server's response
    rate: messages per second of the number
    limit: messages per second that the server accepts; 0 for any
    environment: variables of A
    """
    directory = await _fresh(current, name)
    sender = CloudSender(directory / "a", await current.database(), {**UNLIMITED, **(environment or {})}, rate=rate)
    async with (
        sender,
        GraphProcess(directory, delay=delay, rate=limit) as graph,
        SinkProcess(directory, sender.webhook_secret) as sink,
    ):
        try:
            await sender.run("migrate")
            printed = await sender.switch("token", APP_SECRET, graph.base_url, "--unchecked")
            await sender.start(PROCESSES)
            business = await sender.business()
            # Waits until the Webapp has reached the Coreapp.
            await business.check_contacts(stage.recipients(1, 1))
            await business.set_webhook(sink.url)
            yield AloneScene(
                sender,
                business,
                sink,
                {"graph": graph.pid},
                graph=graph,
                callback=printed_field(printed, "callback"),
                phone_number_id=sender.ids.phone_number_id,
            )
        finally:
            _keep_logs(current, name, sender)


async def _fresh(current: Session, name: str) -> Path:
    """Return a new directory, and remove the databases of an earlier run."""
    server = await current.database()
    for schemas in ("a", "b"):
        await asyncio.to_thread(installation.remove_databases, server, schemas)
    directory = current.directory / f"{name}-{time.monotonic_ns()}"
    directory.mkdir()
    return directory


def _keep_logs(current: Session, name: str, *kept: Installation) -> None:
    if current.options.keep_logs:
        for one in kept:
            installation.keep_logs(one.directory, Path(current.options.keep_logs) / name / one.directory.name)


def _robots(current: Session) -> int:
    return ROBOTS_QUICK if current.options.quick else ROBOTS


def _texts(name: str, numbers: Sequence[str]) -> list[Message]:
    return [contents.text(number, f"{name} {i}: ") for i, number in enumerate(numbers)]


async def measure_pair(current: Session) -> Run:
    """Measure messages from v1 at A to three statuses at A's webhook. Raises `RunFailed` and others."""
    count = PAIR_QUICK if current.options.quick else PAIR
    robots = _robots(current)
    async with paired(current, "pair") as scene:
        await messages.warm_up(scene, stage.recipients(robots, robots), CLIENTS)
        work = _texts("pair", stage.recipients(robots, count))
        run = await messages.closed(scene, "pair", "A, B and their database", work, CLIENTS, planned=count)
    if not current.options.quick and run.rate < LEAST_PAIR:
        raise RunFailed(f"{run.rate:.0f} messages per second; the limit is {LEAST_PAIR:.0f}")
    return run


def _posted_run(
    name: str,
    title: str,
    load: Load,
    posts: Posts,
    samples: Samples,
    started: float,
    *,
    rate: float | None = None,
    details: Mapping[str, object] | None = None,
) -> Run:
    """Return the figures of messages posted to the bare server. Raises `RunFailed` when some were not, or twice.

    started: Unix seconds
    rate: messages per second; None to count from the first request to the last post
    """
    accepted = {sent.request.message_id for sent in load.sent if sent.request.accepted}
    if accepted != set(posts.times) or posts.repeated:
        raise RunFailed(f"{len(accepted)} messages accepted, {len(posts.times)} posted, {posts.repeated} of them again")
    seconds = max(posts.times.values()) - started
    return Run(
        name=name,
        title=title,
        count=len(accepted),
        unit="messages",
        seconds=seconds,
        rate=len(accepted) / seconds if rate is None else rate,
        latencies={
            "POST /v1/messages": summary.summarise([sent.took for sent in load.sent]),
            "request to post": summary.summarise(
                [max(0.0, posts.times[sent.request.message_id] - sent.started) for sent in load.sent]
            ),
        },
        throughput=summary.per_second(posts.times.values(), started),
        samples=samples,
        details={"throttled": posts.throttled, **(details or {})},
    )


async def measure_sink(current: Session, name: str, milliseconds: int, rate: int) -> Run:
    """Measure messages from v1 at A to their posts. Raises `RunFailed` and others.

    milliseconds: until the server's response
    rate: messages per second of the number
    """
    count = SINK_QUICK if current.options.quick else SINK
    async with alone(current, name, delay=milliseconds / 1000, rate=rate) as scene:
        numbers = stage.recipients(ROBOTS, count)
        await client.closed_loop(scene.business, _texts("warm-up", numbers[: count // 5]), CLIENTS)
        await _wait_posted(scene, count // 5)
        await scene.graph.take()
        load = Load([], [])
        async with scene.sampler() as sampler:
            started = time.time()
            await client.closed_loop(scene.business, _texts(name, numbers), CLIENTS, load=load)
            await _wait_posted(scene, count)
        posts = await scene.graph.take()
        limited = f", at most {rate:,} messages per second" if rate == HIGHEST_RATE else ""
        title = f"A alone, Cloud API responds after {milliseconds} ms{limited}"
        return _posted_run(name, title, load, posts, sampler.samples, started)


async def _wait_posted(scene: AloneScene, count: int, *, least: float = messages.SLOWEST) -> None:
    """Wait until `count` messages were posted. Raises `RunFailed`. least: messages per second at which to give up"""
    try:
        await scene.graph.wait_posted(count, seconds=60 + count / least)
    except TimeoutError:
        posts = await scene.graph.take()
        raise RunFailed(f"of {count} messages only {len(posts.times)} were posted") from None


async def measure_drain(current: Session) -> Run:
    """Measure the rate at which a queue drains at a number of 80 messages per second. Raises `RunFailed` and others."""
    count = DRAIN_QUICK if current.options.quick else current.options.queued
    environment = {"TIDINGS_JOB_QUEUE_LIMIT": str(count + 1_000), "TIDINGS_CLOUD_PAIR_PACING": "1"}
    async with alone(current, "drain", rate=NUMBER_RATE, limit=NUMBER_RATE, environment=environment) as scene:
        numbers = [f"1666{index % DRAIN_RECIPIENTS:07d}" for index in range(count)]
        load = Load([], [])
        async with scene.sampler() as sampler:
            started = time.time()
            await client.closed_loop(scene.business, _texts("drain", numbers), CLIENTS, load=load)
            filled = time.time()
            await _wait_posted(scene, count, least=NUMBER_RATE / 2)
        posts = await scene.graph.take()
        rate = drain_rate(posts.times.values(), filled)
        title = f"{count:,} messages at a number of {NUMBER_RATE} per second"
        details = {"filled_in_s": round(filled - started, 1)}
        run = _posted_run("drain", title, load, posts, sampler.samples, started, rate=rate, details=details)
    current.report.notes.append(
        f"Drained at {rate:.2f} messages per second (limit {NUMBER_RATE} ± {MOST_OFF:.0%}), {posts.throttled} refused "
        f"with 130429 (limit 0); all {count:,} accepted within {filled - started:.1f} s."
    )
    if posts.throttled or (not current.options.quick and abs(rate / NUMBER_RATE - 1) > MOST_OFF):
        raise RunFailed(f"drained at {rate:.2f} messages per second, {posts.throttled} refused with 130429")
    return run


def drain_rate(times: Iterable[float], filled: float) -> float:
    """Return the messages per second between the first and the last post after a moment. Raises `RunFailed`."""
    later = sorted(moment for moment in times if moment > filled)
    if len(later) < 2:
        raise RunFailed("the queue was empty when the last message was accepted")
    return (len(later) - 1) / (later[-1] - later[0])


class StatusPoster(Business):
    """Posts statuses as the Cloud API does. A message of `send` is the body of a webhook."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(port)
        self._path = path

    def message_request(self, body: bytes, key: str) -> bytes:
        signature = hmac.new(APP_SECRET.encode(), body, hashlib.sha256).hexdigest()
        return (
            b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"X-Hub-Signature-256: sha256=%s\r\nContent-Length: %d\r\n\r\n%s"
        ) % (self._path.encode(), signature.encode(), len(body), body)

    def accepted_id(self, response: bytes) -> str:
        return ""

    async def send(self, connection: Connection, number: str, text: str) -> Sent:
        return await self.post(connection, Message(number, text.encode(), ledger.digest(text)))


def status_body(scene: AloneScene, sent: Sent, status: str) -> str:
    """Return the webhook with one status of a message."""
    message_id, number = sent.request.message_id, sent.request.number
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": ACCOUNT, "phone_number_id": scene.phone_number_id},
        "statuses": [
            {
                "id": graph_sink.wamid(message_id),
                "status": status,
                "timestamp": str(int(time.time())),
                "recipient_id": number,
                "biz_opaque_callback_data": message_id,
            }
        ],
    }
    entry = {"id": scene.phone_number_id, "changes": [{"value": value, "field": "messages"}]}
    return msgspec.json.encode({"object": "whatsapp_business_account", "entry": [entry]}).decode()


async def measure_webhooks(current: Session) -> Run:
    """Measure posts of one status each while A sends. Raises `RunFailed` and others."""
    count = WEBHOOKS_QUICK if current.options.quick else WEBHOOKS
    async with alone(current, "webhooks") as scene:
        numbers = stage.recipients(ROBOTS, count)
        load = await client.closed_loop(scene.business, _texts("reported", numbers), CLIENTS)
        await _wait_posted(scene, count)
        poster = StatusPoster(scene.installation.api_port, scene.callback)
        work = ((sent.request.number, status_body(scene, sent, status)) for sent in load.sent for status in STATUSES)
        meanwhile = ((number, f"meanwhile {i}") for i, number in enumerate(numbers))
        async with scene.sampler() as sampler:
            started = time.time()
            posted, _ = await asyncio.gather(
                client.open_loop(poster, work, POST_RATE, limit=POST_CONNECTIONS),
                client.open_loop(scene.business, meanwhile, POST_RATE / len(STATUSES)),
            )
            ended = max(sent.started + sent.took for sent in posted.sent)
            wrong = [sent.request.status for sent in posted.sent if sent.request.status != 200]
            if wrong:
                raise RunFailed(f"{len(wrong)} posts got another response than 200, for example with {wrong[0]}")
            await messages.wait_complete(scene, count)
    seconds = ended - started
    latency = summary.summarise([sent.took for sent in posted.sent])
    late = seconds - len(posted.sent) / POST_RATE
    if not current.options.quick and (latency.p99 > MOST_P99 or late > 1.0):
        raise RunFailed(
            f"p99 of {latency.p99:.0f} ms, {late:.1f} s behind the rate; the limits are {MOST_P99:.0f} ms, 1 s"
        )
    return Run(
        name="webhooks",
        title=f"{POST_RATE:.0f} posts per second with one status each",
        count=len(posted.sent),
        unit="posts",
        seconds=seconds,
        rate=len(posted.sent) / seconds,
        latencies={"POST /cloud/callbacks": latency},
        throughput=summary.per_second([sent.started for sent in posted.sent], started),
        samples=sampler.samples,
    )


async def measure(current: Session) -> None:
    """Carry out all runs. Raises `RunFailed`."""
    if current.is_wanted("pair"):
        await current.once(Variant("pair", "A, B and their database", functools.partial(measure_pair, current)))
    for kind, rate in (("sink", PLENTY), ("rate", HIGHEST_RATE)):
        fast, slow = (
            Variant(name, name, functools.partial(measure_sink, current, name, milliseconds, rate))
            for name, milliseconds in ((f"{kind}-1ms", 1), (f"{kind}-150ms", 150))
        )
        if current.is_wanted(slow.name) and current.is_wanted(fast.name):
            await current.alternate(fast, slow, rounds=1 if current.options.quick else current.options.rounds)
        else:
            for variant in (fast, slow):
                if current.is_wanted(variant.name):
                    await current.once(variant)
    _judge(current)
    if current.is_wanted("drain"):
        title = f"a queue at {NUMBER_RATE} messages per second"
        await current.once(Variant("drain", title, functools.partial(measure_drain, current)))
    if current.is_wanted("webhooks"):
        title = f"{POST_RATE:.0f} posts of the Cloud API per second"
        await current.once(Variant("webhooks", title, functools.partial(measure_webhooks, current)))


def _judge(current: Session) -> None:
    """Compare the rates with the bare server to their limits. Raises `RunFailed`, unless --quick."""
    rates = [run.rate for run in current.report.runs if run.name == "sink-1ms" and not run.is_marked]
    ratios = [ratio.value for ratio in current.report.ratios if ratio.name == "rate-150ms"]
    if current.options.quick:
        return
    if rates and statistics.median(rates) < LEAST_SINK:
        raise RunFailed(f"{statistics.median(rates):.0f} messages per second at A alone; the limit is {LEAST_SINK:.0f}")
    if ratios and ratios[0] is not None and ratios[0] < LEAST_SLOW:
        raise RunFailed(f"{ratios[0]:.2f} of the rate with responses of 150 ms; the limit is {LEAST_SLOW}")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="of both delays (default %(default)s)")
    parser.add_argument("--queued", type=int, default=DRAIN, help="messages of *drain* (default %(default)s)")


BENCHMARK = Benchmark(
    name="cloud_upstream",
    title="Cloud API behind",
    how=HOW,
    measure=measure,
    names=["pair", "sink-1ms", "sink-150ms", "rate-1ms", "rate-150ms", "drain", "webhooks"],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
