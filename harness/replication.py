"""Primary and semi-synchronous replica, which can switch roles: a commit is on the disks of both."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from harness import polling
from harness.mariadb import MariaDB

# Seconds that the replica may take to receive all commits of the primary.
CATCH_UP = 30.0
# User whose writes a read-only server refuses: it has all privileges in our schemas, and no others.
USER = "tidings"


class Pair:
    """Two servers, one of which accepts writes."""

    def __init__(self, schemas: tuple[str, ...], *, flush_log: int = 1) -> None:
        """schemas: those that `USER` may make and use."""
        self._schemas = schemas
        self.primary, self.replica = (
            MariaDB(
                flush_log=flush_log,
                options=(
                    f"--server-id={number}",
                    "--log-bin=binary",
                    "--log-slave-updates=ON",
                    "--binlog-format=ROW",
                    f"--sync-binlog={flush_log}",
                    "--rpl-semi-sync-slave-enabled=ON",
                    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
                    "--rpl-semi-sync-master-timeout=60000",
                ),
            )
            for number in (1, 2)
        )

    def start(self) -> None:
        """Start both for the first time."""
        self.primary.start()
        self.replica.start()
        self._follow()
        grants = [f"GRANT ALL ON `{schema}`.* TO {USER}@127.0.0.1" for schema in self._schemas]
        _execute(self.primary, f"CREATE USER {USER}@127.0.0.1", *grants)

    def switch(self) -> None:
        """Switch roles; the former primary keeps running, with its connections, and accepts no writes."""
        _execute(self.primary, "SET GLOBAL read_only = 1")
        self._catch_up()
        self._promote()
        self._follow()

    def lose_primary(self) -> None:
        """Kill the primary and promote the replica, once it has applied all that it received."""
        self.primary.kill9()
        # One second of silence, after which monitoring would react.
        time.sleep(1.0)
        _execute(self.replica, "STOP SLAVE IO_THREAD")
        polling.wait_until(
            self._has_applied_all, seconds=CATCH_UP, failure=lambda: "the replica does not apply what it was sent"
        )
        self._promote()

    def remove(self) -> None:
        """Kill both servers and remove their directories."""
        self.primary.remove()
        self.replica.remove()

    def _follow(self) -> None:
        _execute(
            self.replica,
            "SET GLOBAL read_only = 1",
            # It has no replica whose acknowledgement it could wait for.
            "SET GLOBAL rpl_semi_sync_master_enabled = OFF",
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {self.primary.port}, MASTER_USER = 'root', "
            "MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )
        _execute(self.primary, "SET GLOBAL rpl_semi_sync_master_enabled = ON")

    def _promote(self) -> None:
        _execute(self.replica, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
        self.primary, self.replica = self.replica, self.primary

    def _catch_up(self) -> None:
        position = _query_row(self.primary, "SELECT @@gtid_binlog_pos")["@@gtid_binlog_pos"]
        waited = _query_row(self.replica, f"SELECT MASTER_GTID_WAIT('{position}', {CATCH_UP}) AS result")
        if waited["result"] != 0:
            raise TimeoutError("the replica does not catch up")
        # Writes before it first followed a server do not count towards its position.
        _execute(self.replica, "STOP SLAVE")

    def _has_applied_all(self) -> bool:
        state = _query_row(self.replica, "SHOW SLAVE STATUS")
        return bool(state["Read_Master_Log_Pos"] == state["Exec_Master_Log_Pos"])


@contextlib.contextmanager
def running(*schemas: str, flush_log: int = 1) -> Iterator[Pair]:
    """Provide a pair within the block."""
    pair = Pair(schemas, flush_log=flush_log)
    try:
        pair.start()
        yield pair
    finally:
        pair.remove()


def _execute(server: MariaDB, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _query_row(server: MariaDB, sql: str) -> dict[str, Any]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
        assert row is not None
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
