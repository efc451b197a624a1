"""Fixtures for all packages: databases of every kind, and the check that no process outlives the tests."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import fastapi.dependencies.models
import hypothesis
import jinja2
import psutil
import pymysql
import pytest
import sqlalchemy as sa
from pymysql.cursors import Cursor
from sqlalchemy.ext.asyncio import AsyncConnection

from harness import database_server, packages
from harness.installation import remove_databases
from harness.local_only import sitecustomize
from harness.mariadb import MariaDB
from tests import migrated, processor_speed, selected_variants, statements
from tests.compiled_statements import CompiledStatements
from tidings.installation.settings import DatabaseSettings
from tidings.storage import outages
from tidings.storage.database import Database

DatabaseFactory = Callable[[str], Awaitable[Database]]

_numbers = itertools.count(1)
_PR_SET_CHILD_SUBREAPER = 36

# The same examples in every run, on a machine of any speed: a change fails for what it changed, not by chance.
# `--hypothesis-profile=default` searches for new ones.
hypothesis.settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="attacks, generated input and migrations in full")
    parser.addoption("--few-variants", action="store_true", help="run tests of some folders on one database only")
    parser.addoption("--most-cpu", type=float, metavar="SECONDS", help="fail each test that uses more CPU time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that uses more CPU time than `--most-cpu`, in this process and in those that it has ended.

    The limit grows with what the same work costs at this moment. Fixtures do not count: tests may share them.
    """
    begun = sum(os.times()[:4])
    result = yield
    used, most = sum(os.times()[:4]) - begun, item.config.getoption("--most-cpu")
    if most and used > most and used > most * processor_speed.slowdown():
        pytest.fail(f"used {used:.0f} s of CPU time, more than {most:g} s: give it its own target", pytrace=False)
    return result


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that refuses connections and that no other process can get."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the variants that `--few-variants` excludes."""
    if not config.getoption("--few-variants"):
        return
    selected = selected_variants.select(item.nodeid for item in items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in selected])
    items[:] = [item for item in items if item.nodeid in selected]


@pytest.fixture(scope="session")
def is_long(pytestconfig: pytest.Config) -> bool:
    """Return whether tests that have a short and a long form take the long one."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def examples(is_long: bool) -> Callable[[int], int]:
    """Return the number of generated inputs to try out of `count`: all with `--long`, a 20th without."""
    return lambda count: count if is_long else count // 20


@pytest.fixture(scope="session")
def _watch() -> Iterator[statements.StatementWatch]:
    watch = statements.StatementWatch()
    sa.event.listen(sa.Engine, "before_cursor_execute", watch.note)
    yield watch
    sa.event.remove(sa.Engine, "before_cursor_execute", watch.note)


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> Iterator[None]:
    """Have all engines share the statements that one of them has compiled."""
    compiled = CompiledStatements()

    def share(connection: sa.Connection) -> None:
        connection.execution_options(compiled_cache=compiled)

    sa.event.listen(sa.Engine, "engine_connect", share)
    yield
    sa.event.remove(sa.Engine, "engine_connect", share)


@pytest.fixture(scope="session", autouse=True)
def _compiled_templates() -> Iterator[None]:
    """Have all environments share the templates that one of them has compiled; their code finds filters by name."""
    compiled: dict[tuple[Any, ...], Any] = {}
    compile_template = jinja2.Environment.compile

    def shared(environment: jinja2.Environment, *source: Any, **options: Any) -> Any:
        key = (*source, *sorted(options.items()))
        if key not in compiled:
            compiled[key] = compile_template(environment, *source, **options)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", shared)
        yield


@pytest.fixture(scope="module", autouse=True)
def _applications_freed() -> Iterator[None]:
    """Remove endpoints from the caches of FastAPI, which hold 4,096 and through them the applications of earlier tests.

    With those of a thousand networks a full collection takes two seconds.
    """
    yield
    for cached in vars(fastapi.dependencies.models).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@pytest.fixture(autouse=True)
def _portable(_watch: statements.StatementWatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that the statements of a test are portable to MySQL and clusters, unless it is marked `unportable`."""
    yield
    found = _watch.take()
    assert not found or request.node.get_closest_marker("unportable"), "\n".join(found)


@pytest.fixture(scope="session", autouse=True)
def _local_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Refuse look-ups of public names and connections to public addresses, here and in processes of the harness."""
    sitecustomize.install(str(tmp_path_factory.mktemp("local_only") / "record"))


@pytest.fixture(autouse=True)
def _stays_on_machine(_local_only: None) -> Iterator[None]:
    """Fail a test during which something tried to leave this machine."""
    yield
    assert not (found := sitecustomize.take()), "\n".join(found)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the interpreter GC: an object is freed with its last reference or stays. Garbage of earlier tests is
    collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Database server for all tests of the session: a MariaDB, or the one that `TIDINGS_TEST_SERVER` names.

    The first test that needs it starts it. Tests that kill a server start a separate one.
    """
    try:
        server = database_server.make(flush_log=0, buffer_pool_mb=64)
    except packages.PackageMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def installation_mariadb(mariadb: MariaDB) -> Iterator[MariaDB]:
    """Database server for a whole installation, whose database names are fixed: removed before and after the
    test."""
    remove_databases(mariadb)
    yield mariadb
    remove_databases(mariadb)


@pytest.fixture(scope="session")
def _templates() -> set[str]:
    """Families of which the server has a migrated schema, which tests copy: `template_FAMILY`."""
    return set()


@pytest.fixture(scope="session")
def _used_schemas() -> dict[str, list[str]]:
    """Schemas that earlier tests left on the server, by family: emptying one is ten times as fast as creating
    one."""
    return {}


@pytest.fixture(params=["sqlite", "mariadb"])
def database_engine(request: pytest.FixtureRequest) -> str:
    """Kind of database that `database_factory` makes."""
    return str(request.param)


@pytest.fixture
async def database_factory(
    database_engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    _templates: set[str],
    _used_schemas: dict[str, list[str]],
) -> AsyncIterator[DatabaseFactory]:
    """Function that makes databases: `await database_factory("business")` returns an empty, migrated one of that
    family.

    Databases are closed after the test.
    """
    opened: list[Database] = []
    schemas: list[tuple[str, str]] = []

    async def make(family: str) -> Database:
        if database_engine == "sqlite":
            path = tmp_path / f"{family}_{next(_numbers)}.db"
            await migrated.create_sqlite(path, family)
            url = f"sqlite+aiosqlite:///{path}"
        else:
            server: MariaDB = request.getfixturevalue("mariadb")
            template = f"template_{family}"
            if family not in _templates:
                await migrated.migrate(server.url(template), family)
                _templates.add(family)
            used = _used_schemas.setdefault(family, [])
            if used:
                name = used.pop()
                _empty_schema(server, template, name)
            else:
                name = f"test_{family}_{next(_numbers)}"
                _copy_schema(server, template, name)
            schemas.append((family, name))
            url = server.url(name)
        database = Database(DatabaseSettings(url), family)
        opened.append(database)
        return database

    yield make
    for database in opened:
        await database.close()
    for family, name in schemas:
        _used_schemas[family].append(name)


def _copy_schema(server: MariaDB, template: str, name: str) -> None:
    """Copy tables and rows, which is about ten times as fast as migrating again."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (template,))
        for (table,) in cursor.fetchall():
            cursor.execute(f"CREATE TABLE {name}.{table} LIKE {template}.{table}")
            cursor.execute(f"INSERT INTO {name}.{table} SELECT * FROM {template}.{table}")


def _empty_schema(server: MariaDB, template: str, name: str) -> None:
    """Restore a used schema to the content of the template. Fails when a test has left a lock behind."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET innodb_lock_wait_timeout = 5")
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
        cursor.execute(f"{tables} AND table_name NOT IN ({tables})", (name, template))
        for (table,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE {name}.{table}")
        cursor.execute(tables, (template,))
        names = [table for (table,) in cursor.fetchall()]
        for table in _filled_tables(cursor, name, names):
            cursor.execute(f"DELETE FROM {name}.{table}")
        for table in _filled_tables(cursor, template, names):
            cursor.execute(f"INSERT INTO {name}.{table} SELECT * FROM {template}.{table}")


def _filled_tables(cursor: Cursor, schema_name: str, tables: list[str]) -> list[str]:
    """Return the tables that have rows, by one statement. It waits for locks, as `DELETE` would."""
    each = (f"(SELECT '{table}' FROM {schema_name}.{table} LIMIT 1 FOR UPDATE)" for table in tables)
    cursor.execute(" UNION ALL ".join(each))
    return [table for (table,) in cursor.fetchall()]


def pytest_sessionstart() -> None:
    """Become the parent of orphaned descendants, so that they are found at the end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the interpreter GC while tests are collected, all of which stay: it would take a fifth of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude modules and tests, which stay to the end, from the interpreter GC, and collect rarely.

    A collection of them takes half a second of the running test. At the interpreter's own thresholds collections take a
    tenth of the CPU time of the whole suite.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a test left a process behind."""
    if hasattr(session.config, "workerinput"):
        # Processes that a worker leaves behind become children of the main process when the worker ends.
        return
    left = psutil.Process().children(recursive=True)
    # A process that is about to end does not count.
    _, left = psutil.wait_procs(left, timeout=2)
    for process in left:
        with contextlib.suppress(psutil.Error):
            print(f"\nleft behind by the tests: {process.pid} {' '.join(process.cmdline())}", flush=True)
            process.kill()
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def lost_commit(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """List to which a test adds a value: the next writing transaction is committed with an unknown outcome."""
    left: list[bool] = []
    transaction = Database.transaction

    @contextlib.asynccontextmanager
    async def lossy(self: Database, **options: Any) -> AsyncIterator[AsyncConnection]:
        async with transaction(self, **options) as connection:
            yield connection
        if left:
            left.clear()
            error = sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
            outages.note_commit(error)
            raise error

    monkeypatch.setattr(Database, "transaction", lossy)
    return left
