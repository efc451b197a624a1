"""Checks of a database: reachable, at the right revision, durable, fast enough, and with an accurate clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cli.doctor import clock
from cli.doctor.findings import Finding, error, fine, warning
from tidings.installation.settings import describe_url
from tidings.storage import outages, probes, revisions, schema
from tidings.storage.database import Database

SECONDS = 5.0  # timeout of a response of the database

# Milliseconds per write as measured by `mysqlslap`, from the guide of the On-Premises API: the recommended maximum, and
# the latency that reduces its message rate by a quarter to a half.
GOOD_MS, POOR_MS = 5.0, 15.0
# Number of concurrent clients, and of writes of all clients together.
CLIENTS, WRITES = 5, 1000


class DatabaseReachableCheck:
    """Check that the database responds. Reports the server's version and the cipher of the connection."""

    def __init__(self, database: Database) -> None:
        self.name = f"database {database.family}"
        self._database = database

    async def run(self) -> Sequence[Finding]:
        where = describe_url(self._database.settings.url)
        started = time.monotonic()
        try:
            server = await probes.server(self._database, seconds=SECONDS)
        except Exception as failure:
            reason = outages.describe(failure)
            if reason is None:
                raise
            remedy = "start it, or correct WA_DB_* (or TIDINGS_*_DB_URL): address, user, password, TLS"
            return [error(self.name, f"{where}: {reason}", remedy)]
        took = (time.monotonic() - started) * 1000
        over = f", {server.cipher}" if server.cipher else ""
        found = [fine(self.name, f"{where} responds in {took:.0f} ms: {server.version}{over}")]
        if self._database.settings.tls is not None and not server.cipher:
            found.append(error(self.name, f"{where} is reached without TLS", "set WA_DB_SSL_CA"))
        return found


class TableRevisionCheck:
    """Check of the revision of the tables."""

    def __init__(self, database: Database) -> None:
        self.name = f"tables {database.family}"
        self._database = database

    async def run(self) -> Sequence[Finding]:
        try:
            state = await schema.check(self._database)
        except revisions.PendingMigrations as pending:
            return [error(self.name, str(pending), "run `tidings migrate`, or the release that matches these tables")]
        except revisions.TablesTooNew as too_new:
            return [error(self.name, str(too_new), "replace this program, or restore the backup")]
        if state.is_newer:
            text = f"at revision {state.tables}, which this program ({state.program.revision}) supports"
            return [warning(self.name, text, "finish the upgrade: replace this program by the later release")]
        others = f", for programs from revision {state.oldest} on" if state.oldest else ""
        return [fine(self.name, f"at revision {state.tables}{others}")]


class DurabilityCheck:
    """Check that committed data are on disk before a request is answered with 2xx."""

    def __init__(self, database: Database) -> None:
        self.name = f"durability {database.family}"
        self._database = database

    async def run(self) -> Sequence[Finding]:
        remedy = "change the setting on the server: otherwise an accepted message can be lost"
        weak = await schema.durability_warnings(self._database)
        return [warning(self.name, text, remedy) for text in weak] or [fine(self.name, "commits are durable")]


class DatabaseClockCheck:
    """Check of the difference between the server's clock and the local one; leases use the server's clock."""

    def __init__(self, database: Database) -> None:
        self.name = f"clock of database {database.family}"
        self._database = database

    async def run(self) -> Sequence[Finding]:
        theirs = await probes.server_time(self._database)
        if theirs is None:
            return [fine(self.name, "the database runs in the processes: one clock")]
        return [clock.compare(self.name, theirs, time.time(), exact=True)]


class WriteLatencyCheck:
    """Measurement of the latency of a write, like `mysqlslap` with the options of the On-Premises API's guide.

    Concurrent clients insert and commit single rows into a temporary table that is dropped afterwards.
    """

    def __init__(self, database: Database, *, writes: int = WRITES) -> None:
        """writes: number of writes of all clients together."""
        self.name = f"write latency {database.family}"
        self._database = database
        self._writes = writes

    async def run(self) -> Sequence[Finding]:
        # SQLite has one writer at a time: several clients would measure each other's waits.
        clients = 1 if self._database.settings.engine == "sqlite" else CLIENTS
        try:
            measured = await probes.measure_writes(self._database.settings, clients=clients, writes=self._writes)
        except probes.TableRefused:
            # The recommended privileges: only the user of migrations may create tables.
            text = (
                "not measured, because this user may not create tables: run `tidings doctor` as the user for migrations"
            )
            return [fine(self.name, text)]
        return [self.evaluate(measured)]

    def evaluate(self, measured: probes.Writes) -> Finding:
        """Return the finding for a measurement."""
        text = (
            f"{measured.milliseconds:.1f} ms a write ({measured.count} inserts, {measured.clients} at once, in "
            f"{measured.seconds:.2f} s); {expected(measured.milliseconds)}"
        )
        if measured.milliseconds > POOR_MS:
            remedy = "move the database nearer or to a faster disk, or avoid distant synchronous replicas"
            return error(self.name, text, remedy)
        if measured.milliseconds > GOOD_MS:
            return warning(self.name, text, f"up to {GOOD_MS:g} ms is recommended: a nearer server, or a faster disk")
        return fine(self.name, text)


def expected(milliseconds: float) -> str:
    """Return a text about the message rate that a write latency allows.

    Each response waits for a commit; requests that arrive during one commit share the next.
    """
    alone = 1000 / max(milliseconds, 0.1)
    return f"one client that waits for each answer gets at most {alone:,.0f} messages/s, many at once share commits"
