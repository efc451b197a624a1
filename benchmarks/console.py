"""Lists of the console on large tables, and the cost of open pages: `python -m benchmarks.console [--quick]`.

Fills MariaDB with messages and callbacks, and requests every list with each combination of filters, on the first page,
the next ones, and a page far back. Then alternates the same load without and with five open pages. Fails when a p95
exceeds 150 ms, when the rate falls by over 3 %, or when the Webapp takes over 30 MB more, unless --quick; and when a
page makes the server read over 60,000 rows.
"""

from __future__ import annotations

import argparse
import asyncio
import calendar
import contextlib
import dataclasses
import functools
import itertools
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx

from benchmarks import calibrations, console_rows
from benchmarks.console_rows import FilledRows
from benchmarks.rig import contents, messages, report, session, stage, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from benchmarks.rig.summary import Summary
from harness import client
from harness.mariadb import MariaDB
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Database
from tidings.wire import ids

MESSAGES, CALLBACKS = 10_000_000, 1_000_000
QUICK = 20  # times fewer rows with --quick
SLOW_MS = 150.0  # highest p95 of a list
MOST_ROWS = 60_000  # rows that the server reads for a page
OPEN = 5  # consoles
LEAST_RATE, MOST_MB = 0.97, 30.0
ROBOTS, CLIENTS, LOAD = 1000, 64, 30_000
EXPLAINED = 5  # slowest pages whose statements are explained
LISTS, PLAIN, CONSOLES = "lists", "closed", "open"
ENVIRONMENT = {"TIDINGS_CONSOLE": "1"}
PAGES = (
    "/console",
    "/console/messages",
    "/console/messages?direction=received",
    "/console/callbacks",
    "/console/callbacks?status=failing",
)
HOW = f"""\
Taken by `make bench-console` (`python -m benchmarks.console`). *lists*: every list of the console over HTTP, with each
combination of filters with common, rare and absent values, on the first page, two that follow, and one far back. Only
the Webapp and MariaDB run, so that the rows that MariaDB reads are those of the page. *open*: {OPEN} open pages
({", ".join(f"`{page}`" for page in PAGES)}) with an event stream each, which are loaded again after each event, while
{CLIENTS} clients send texts; *closed*: the same load without them."""


class Console:
    """Logged-in client of the console."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Return a page. Raises `RunFailed` for another status than 200."""
        response = await self.http.get(path, headers=headers)
        if response.status_code != 200:
            raise RunFailed(f"GET {path}: {response.status_code} {response.text[:200]}")
        return response


@contextlib.asynccontextmanager
async def logged_in(port: int) -> AsyncIterator[Console]:
    """Provide a client with a session of the administrator."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
        shown = await http.get("/console/login")
        token = re.findall(r'name="csrf" value="([^"]+)"', shown.text)[0]
        form = {"csrf": token, "username": "admin", "password": client.PASSWORD}
        response = await http.post("/console/login", data=form, headers={"Origin": str(http.base_url).rstrip("/")})
        if response.status_code != 303:
            raise RunFailed(f"login at the console: {response.status_code}")
        yield Console(http)


@dataclasses.dataclass(slots=True)
class ListPage:
    """One combination of filters of a list."""

    title: str  # name of the list
    path: str
    took: list[float] = dataclasses.field(default_factory=list)  # seconds of each request
    rows: int = 0  # most rows that the server read for one of the requested pages

    @property
    def summary(self) -> Summary:
        return summary.summarise(self.took)


def list_pages(filled: FilledRows) -> Iterator[ListPage]:
    """Yield every combination of filters of every list."""
    for path in ("/console/callbacks/audit", "/console/templates", "/console/settings"):
        yield ListPage(path, path)
    peers = ("", console_rows.BUSY_PEER, console_rows.RARE_PEER, console_rows.NO_PEER)
    kinds = ("", console_rows.KINDS[0], console_rows.RARE_KIND, console_rows.NO_KIND)
    statuses = {"sent": ("", "read", "accepted", "failed"), "received": ("", "received", "marked_read")}
    for direction, bound in (("sent", ids.bound), ("received", ids.bound_of_received)):
        fields = {
            "recipient": peers,
            "type": kinds,
            "status": statuses[direction],
            "since": _times(filled.now, console_rows.MESSAGE_DAYS * console_rows.DAY),
        }
        far = (filled.now - console_rows.MESSAGE_DAYS * console_rows.DAY * 0.7) / 1000
        fixed = {"direction": direction}
        yield from _combined(f"messages, {direction}", "/console/messages", fields, fixed, bound=bound, far=far)
    fields = {
        "status": ("", "pending", "failing", "given up", "done"),
        "kind": ("", "status_change", console_rows.RARE_EVENT),
        "recipient": peers,
        "id": ("", filled.subject, "gBEGunknown"),
        "since": _times(filled.now, console_rows.DAY),
    }
    far = (filled.now - console_rows.DAY * 0.7) / 1000
    yield from _combined("callbacks", "/console/callbacks", fields, {}, bound=_seq_at, far=far)


def _seq_at(seconds: float) -> str:
    """Return the `seq` of callbacks made at a Unix time."""
    return str(int(seconds * 1_000_000) << 5)


def _times(now: int, span: int) -> Sequence[str]:
    """Return no start, and one in the middle of the rows."""
    return "", time.strftime("%Y-%m-%dT%H:%M", time.gmtime((now - span // 2) / 1000))


def _combined(
    title: str,
    path: str,
    fields: Mapping[str, Sequence[str]],
    fixed: Mapping[str, str],
    *,
    bound: Callable[[float], str],
    far: float,
) -> Iterator[ListPage]:
    """Yield every combination of fields, on the first page and on one far back: in the middle of a range of times.

    bound: returns the key of rows made at a Unix time
    far: Unix time of the page far back of all rows
    """
    for values in itertools.product(*fields.values()):
        chosen = {name: value for name, value in zip(fields, values, strict=True) if value}
        start = far
        if "since" in chosen:
            chosen["until"] = chosen["since"][:11] + "23:59"
            start = (_seconds(chosen["since"]) + _seconds(chosen["until"])) / 2
        for before in ({}, {"before": bound(start)}):
            yield ListPage(title, f"{path}?{urlencode({**fixed, **chosen, **before})}")


def _seconds(text: str) -> int:
    """Return a time of a filter as Unix time."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M"))


def read_rows(server: MariaDB) -> int:
    """Return the number of rows that the server has read since its start."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = '{_PUSHED}'")
        return sum(int(value) for _, value in cursor.fetchall())


_PUSHED = "Handler_icp_attempts"  # rows that the storage engine has checked by itself


async def request_lists(console: Console, server: MariaDB, pages: Sequence[ListPage], requests: int) -> None:
    """Request each page, and the two that follow it, and note times and rows."""
    idle = await asyncio.to_thread(read_rows, server)
    idle = await asyncio.to_thread(read_rows, server) - idle
    shown_at = time.monotonic()
    for number, page in enumerate(pages):
        paths = [page.path]
        while True:
            before = await asyncio.to_thread(read_rows, server)
            response = await console.get(paths[-1])
            page.rows = max(page.rows, await asyncio.to_thread(read_rows, server) - before - idle)
            following = re.search(r'href="([^"]+)" rel="next"', response.text)
            if following is None or len(paths) == 3:
                break
            paths.append(following[1].replace("&amp;", "&"))
        for path in itertools.islice(itertools.cycle(paths), requests):
            began = time.perf_counter()
            await console.get(path)
            page.took.append(time.perf_counter() - began)
        if time.monotonic() - shown_at > 5:
            shown_at = time.monotonic()
            print(f"    {number + 1:,} of {len(pages):,} pages", flush=True)


async def explain(console: Console, server: MariaDB, path: str, schema: str) -> Sequence[str]:
    """Return how the server carries out each statement of a page: with counted rows, where it counts them."""
    await asyncio.to_thread(_execute, server, "SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1")
    await console.get(path)
    await asyncio.to_thread(_execute, server, "SET GLOBAL general_log = 0")
    query = "SELECT DISTINCT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')"
    lines = []
    for (argument,) in await asyncio.to_thread(_execute, server, query):
        statement = argument.decode() if isinstance(argument, bytes) else str(argument)
        if re.search(r"FROM \(?SELECT|FROM (messages|callback\w*)", statement) and statement.startswith("SELECT"):
            lines.append(f"    {statement[:200]} … ({len(statement):,} characters)")
            lines += await asyncio.to_thread(_plan, server, schema, statement)
    await asyncio.to_thread(_execute, server, "TRUNCATE mysql.general_log")
    return lines


def _execute(server: MariaDB, statement: str) -> Sequence[Any]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _plan(server: MariaDB, schema: str, statement: str) -> list[str]:
    """Return the lines of `ANALYZE`, those that are alike once."""
    with server.connect(schema) as connection, connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {statement}")
        names = [column[0] for column in cursor.description]
        found: dict[str, int] = {}
        for row in cursor.fetchall():
            values = dict(zip(names, row, strict=True))
            chosen = ("table", "type", "key", "rows", "r_rows", "Extra")
            line = ", ".join(f"{name} {values.get(name)}" for name in chosen if name != "table" or values.get("key"))
            found[line] = found.get(line, 0) + 1
    return [f"        {count} × {line}" for line, count in found.items()]


async def fill(scene: Scene, message_count: int, callback_count: int) -> FilledRows:
    """Fill the tables of a running installation."""
    server = scene.installation.mariadb
    assert server is not None
    url = scene.installation.common["TIDINGS_BUSINESS_DB_URL"]
    began, last = time.monotonic(), [0.0]

    def show(what: str, of: int, done: int) -> None:
        now = time.monotonic() - began
        if now - last[0] >= 5 or done == of:
            last[0] = now
            print(f"    {now:4.0f} s: {done:,} of {of:,} {what}", flush=True)

    now = await asyncio.to_thread(
        console_rows.fill,
        server,
        url.rpartition("/")[2],
        message_count,
        functools.partial(show, "messages", message_count),
    )
    database = Database(DatabaseSettings(url), "business")
    try:
        filled = await console_rows.fill_callbacks(
            database, callback_count, now, functools.partial(show, "callbacks", callback_count)
        )
    finally:
        await database.close()
    return dataclasses.replace(filled, messages=message_count)


async def measure_lists(current: Session, prepared: Stage) -> Run:
    """Fill the tables, request every list, and add the tables to the report. Raises `RunFailed`."""
    options = current.options
    part = QUICK if options.quick else 1
    async with prepared.performance(LISTS) as scene:
        for name in ("coreapp", "robots", "network"):
            await scene.installation.processes[name].stop()
        server = scene.installation.mariadb
        assert server is not None
        schema = scene.installation.common["TIDINGS_BUSINESS_DB_URL"].rpartition("/")[2]
        filled = await fill(scene, options.messages or MESSAGES // part, options.callbacks or CALLBACKS // part)
        pages = list(list_pages(filled))
        began = time.monotonic()
        async with scene.sampler() as sampler, logged_in(scene.business.port) as console:
            await request_lists(console, server, pages, 2 if options.quick else options.requests)
            seconds = time.monotonic() - began
            slowest = sorted(pages, key=lambda page: (page.rows > MOST_ROWS, page.summary.p95), reverse=True)
            heaviest = sorted(pages, key=lambda page: page.rows, reverse=True)
            explained: list[str] = []
            for page in {each.path: each for each in (*slowest[:EXPLAINED], *heaviest[:EXPLAINED])}.values():
                explained += [page.path, *await explain(console, server, page.path, schema)]
    tables = [_lists(pages), _slowest(slowest[:EXPLAINED]), _slowest(heaviest[:EXPLAINED])]
    current.report.notes += tables
    print("\n\n".join(["\n".join(explained), *tables]), flush=True)
    over = [page for page in pages if page.rows > MOST_ROWS]
    if over:
        raise RunFailed(
            f"{len(over)} pages read over {MOST_ROWS:,} rows: {[(page.rows, page.path) for page in over[:5]]}"
        )
    slow = [page for page in pages if page.summary.p95 > SLOW_MS]
    if slow and not options.quick:
        raise RunFailed(f"{len(slow)} pages with a p95 over {SLOW_MS:.0f} ms: {[page.path for page in slow[:5]]}")
    took = {title: [second for page in some for second in page.took] for title, some in _by_title(pages).items()}
    count = sum(map(len, took.values()))
    return Run(
        name=LISTS,
        title=f"lists with {filled.messages:,} messages and {filled.callbacks:,} callbacks",
        count=count,
        unit="pages",
        seconds=seconds,
        rate=count / seconds,
        latencies={title: summary.summarise(times) for title, times in took.items()},
        throughput=[],
        samples=sampler.samples,
        details={"rows": {page.path: page.rows for page in heaviest[:50]}, "explained": explained},
    )


def _by_title(pages: Sequence[ListPage]) -> Mapping[str, Sequence[ListPage]]:
    found: dict[str, list[ListPage]] = {}
    for page in pages:
        found.setdefault(page.title, []).append(page)
    return found


def _lists(pages: Sequence[ListPage]) -> str:
    rows = []
    for title, some in _by_title(pages).items():
        took = summary.summarise([second for page in some for second in page.took])
        worst = max(page.summary.p95 for page in some)
        most = max(page.rows for page in some)
        rows.append(
            [
                title,
                f"{len(some)}",
                f"{took.p50:.1f}",
                f"{took.p95:.1f}",
                f"{worst:.1f}",
                f"{took.max:.1f}",
                f"{most:,}",
            ]
        )
    heads = ["list", "combinations of filters", "p50 ms", "p95", "highest p95 of one", "max", "rows read at most"]
    return "\n".join(report.table(heads, rows))


def _slowest(pages: Sequence[ListPage]) -> str:
    rows = []
    for page in pages:
        took = page.summary
        rows.append([f"`{page.path}`", f"{took.p50:.1f}", f"{took.p95:.1f}", f"{took.max:.1f}", f"{page.rows:,}"])
    return "\n".join(report.table(["page", "p50 ms", "p95", "max", "rows read"], rows))


async def keep_open(console: Console, path: str) -> None:
    """Keep a page open as a browser does: load it again after each event of its stream."""
    shown = await console.get(path)
    while True:
        digest = re.findall(r'data-digest="([^"]*)"', shown.text)
        since = digest[0] if digest else ""
        query = urlencode({"of": path, "since": since})
        async with console.http.stream("GET", f"/console/stream?{query}", timeout=None) as stream:
            if stream.status_code != 200:
                raise RunFailed(f"stream of {path}: {stream.status_code}")
            async for line in stream.aiter_lines():
                if line == "event: changed":
                    shown = await console.get(path, {"HX-Request": "true"})  # as htmx requests it


async def measure_load(prepared: Stage, name: str, title: str, *, count: int, opened: int) -> Run:
    """Send `count` messages beside open pages. Raises `RunFailed` and others."""
    async with prepared.performance(name) as scene, logged_in(scene.business.port) as console:
        await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS), CLIENTS)
        async with asyncio.TaskGroup() as group:
            opening = [group.create_task(keep_open(console, page)) for page in PAGES[:opened]]
            async with messages.measured(scene, count) as found:
                numbers = stage.recipients(ROBOTS, count)
                work = [contents.text(number, f"{name} {i}: ") for i, number in enumerate(numbers)]
                await client.closed_loop(scene.business, work, CLIENTS, load=found.load)
            for task in opening:
                task.cancel()
        return found.run(name, title)


def _judge(current: Session) -> None:
    """Add rate and memory to the report. Raises `RunFailed` when a limit is exceeded, unless --quick."""
    peaks = {
        name: [run.samples.peak_rss["webapp"] / 1e6 for run in current.report.runs if run.name == name]
        for name in (PLAIN, CONSOLES)
    }
    ratio = current.report.ratios[-1]
    if not all(peaks.values()):
        return
    more = statistics.median(peaks[CONSOLES]) - statistics.median(peaks[PLAIN])
    current.report.notes.append(
        f"{OPEN} open pages: {more:.1f} MB more in the Webapp (limit {MOST_MB:.0f}), {ratio} (limit {LEAST_RATE})."
    )
    if current.options.quick:
        return
    if ratio.value is not None and ratio.value < LEAST_RATE:
        raise RunFailed(f"{ratio}: less than {LEAST_RATE:.0%} of the rate without open pages")
    if more > MOST_MB:
        raise RunFailed(f"{more:.1f} MB more with {OPEN} open pages")


async def measure(current: Session) -> None:
    """Measure the lists, and then open pages in alternating rounds. Raises `RunFailed`."""
    options = current.options
    async with stage.prepared(current, robots=ROBOTS, environment=ENVIRONMENT) as prepared:
        if current.is_wanted(LISTS):
            await current.once(
                Variant(LISTS, "lists", functools.partial(measure_lists, current, prepared)), again=False
            )
        count = LOAD // QUICK if options.quick else LOAD
        base, opened = (
            Variant(name, title, functools.partial(measure_load, prepared, name, title, count=count, opened=pages))
            for name, title, pages in ((PLAIN, "no open page", 0), (CONSOLES, f"{OPEN} open pages", OPEN))
        )
        if current.is_wanted(PLAIN) or current.is_wanted(CONSOLES):
            await current.alternate(base, opened, rounds=options.rounds)
            _judge(current)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="without and with open pages (default %(default)s)")
    parser.add_argument("--messages", type=int, help=f"in the tables (default {MESSAGES:,}; --quick: a {QUICK}th)")
    parser.add_argument("--callbacks", type=int, help=f"in the tables (default {CALLBACKS:,}; --quick: a {QUICK}th)")
    parser.add_argument("--requests", type=int, default=20, help="of each page of a list (default %(default)s)")


BENCHMARK = Benchmark(
    name="console",
    title="Console",
    how=HOW,
    measure=measure,
    names=[LISTS, PLAIN, CONSOLES],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
