"""Queues on the command line: listed without bodies, replayed and purged where no Coreapp owns the shard."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cli import choices, guard, queue_pages
from cli.commands import queue
from tests.cli.support import run
from tidings.installation.settings import DatabaseSettings
from tidings.storage.business import (
    audit_entries,
    callback_purges,
    callbacks,
    job_errors,
    jobs,
    messages,
    quarantine,
    shards,
)
from tidings.storage.business.audit_entries import AuditAction
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.job_errors import JobError
from tidings.storage.business.jobs import Job
from tidings.storage.business.messages import MessageRow
from tidings.storage.business.quarantine import Item, Suspect
from tidings.storage.database import Connection, Database
from tidings.wire import connection as wire
from tidings.wire import core

ME, ANN, BEN = "15550000000", "491700000001", "491700000002"
NOW = time.time()
BODY = b"\x01a body that nobody may see"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Database without rows, to be copied."""
    directory = tmp_path_factory.mktemp("migrated")
    assert run("migrate", TIDINGS_DATA_DIR=str(directory)).returncode == 0
    return directory


@pytest.fixture
def data_dir(migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "business.db").write_bytes((migrated / "business.db").read_bytes())
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path))
    in_database(tmp_path, fill)
    return tmp_path


@pytest.fixture
def tool(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    """Function that runs `tidings queue` with these arguments and returns the output."""

    def call(*words: str) -> str:
        parser = argparse.ArgumentParser()
        queue.add_arguments(parser)
        capsys.readouterr()
        assert queue.run(parser.parse_args(words)) == 0
        return capsys.readouterr().out

    return call


def in_database(data_dir: Path, work: Callable[[Connection], Any]) -> Any:
    async def run() -> Any:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{data_dir}/business.db"), "business")
        try:
            async with database.transaction() as connection:
                return await work(connection)
        finally:
            await database.close()

    return asyncio.run(run())


def row(seq: int, subject: str, hours: float) -> Callback:
    return Callback(seq, 0, ME, subject, "status_change", BODY, int((NOW - hours * 3600) * 1000))


async def fill(connection: Connection) -> None:
    """Insert callbacks: 1 for Ann, dead for three hours; for Ben 2, dead for one hour, and 3, failing; 4 pending."""
    dead = [dataclasses.replace(row(1, "a1", 3), attempt=10), dataclasses.replace(row(2, "b1", 1), attempt=10)]
    dead[0].last_error, dead[1].last_error = "HTTP 404", "HTTP 500"
    failing = dataclasses.replace(row(3, "b2", 0.5), attempt=2, due_at=1_700_000_060_000, last_error="HTTP 503")
    await callbacks.enqueue(connection, [row(3, "b2", 0.5), row(4, "a2", 0.1)], [BODY, BODY])
    await callbacks.reschedule(connection, [failing], [BODY])
    await callbacks.mark_dead(connection, dead, [BODY, BODY])
    peers = {"a1": ANN, "a2": ANN, "b1": BEN, "b2": BEN}
    await messages.add(connection, [MessageRow(id, ME, 0, peer, "text", 2, 1, "") for id, peer in peers.items()])
    await jobs.enqueue(connection, [Job("a3", 0, ME, ANN, 0, "", BODY, int((NOW - 60) * 1000), "request-1")])
    failed = JobError("a3", 3, "the network is overloaded", int((NOW - 10) * 1000))
    await job_errors.execute(connection, [job_errors.JobErrorChanges([failed])])
    await shards.create_shards(connection, 1)


class Coreapp:
    """Owner of a shard, in a separate thread. It reports that it has deleted all but one of the named messages."""

    def __init__(self) -> None:
        self.requests: list[core.PurgeJobs] = []
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Coreapp:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def opened(self, connection: wire.Connection) -> None:
        """Ignore the event."""

    def closed(self, connection: wire.Connection, reason: str) -> None:
        """Ignore the event."""

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, core.PurgeJobs):
            self.requests.append(frame)
            connection.send(core.Purged(frame.n, len(frame.ids) - 1, 1))
        else:
            connection.send(core.Done(frame.n))

    def _run(self) -> None:
        server = self._loop.run_until_complete(wire.listen("127.0.0.1", 0, core.Request, lambda: self))
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(server.wait_closed())


@pytest.fixture
def coreapp(data_dir: Path) -> Iterator[Coreapp]:
    """Coreapp that owns the shard, in which one more job waits."""
    with Coreapp() as coreapp:

        async def own(connection: Connection) -> None:
            await shards.claim(connection, 0, owner="a", address=coreapp.address, heartbeat_timeout=30.0)
            await jobs.enqueue(connection, [Job("b3", 0, ME, BEN, 1, "message", BODY, int((NOW - 30) * 1000))])

        in_database(data_dir, own)
        yield coreapp


def events(text: str) -> Sequence[str]:
    return [entry["event_id"] for entry in json.loads(text)["callbacks"]]


def test_both_queues_are_counted(tool: Tool) -> None:
    found = json.loads(tool("--json"))["queues"]
    counts = {(entry["queue"], entry["status"]): entry["rows"] for entry in found}
    assert counts == {
        ("jobs", "new"): 1,
        ("callbacks", "dead"): 2,
        ("callbacks", "failing"): 1,
        ("callbacks", "pending"): 1,
    }
    oldest = {(entry["queue"], entry["status"]): entry["oldest_age_s"] for entry in found}
    # Three hours at the time when the queues were filled, before any of these tests.
    assert 0 <= oldest["callbacks", "dead"] - 3 * 3600 < 3600
    *row, age = tool().splitlines()[1].split()
    assert row == ["jobs", "0", "new", "1"]
    assert re.fullmatch(r"\d+(?:s|m|h)", age)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--limit", "-1", "'-1' is not a whole number from 0 to 999999999"),
        ("--shard", "-1", "'-1' is not a whole number from 0 to 999999999"),
        ("--recipient", "Anna", "'Anna' is neither a number nor a group's id"),
    ],
)
def test_an_option_without_meaning_is_refused(
    capsys: pytest.CaptureFixture[str], option: str, value: str, reason: str
) -> None:
    parser = argparse.ArgumentParser()
    queue.add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["jobs", f"{option}={value}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.strip().endswith(f"argument {option}: {reason}")


def test_callbacks_are_listed_with_their_last_error_and_never_with_a_body(tool: Tool) -> None:
    listed = tool("callbacks")
    lines = listed.splitlines()
    assert lines[0] == "evt_1  status_change  a1  491700000001  shard 0  3h old, 10 attempts, given up  HTTP 404"
    assert lines[2].endswith("2 attempts, again at 2023-11-14T22:14:20Z  HTTP 503")
    assert lines[3].endswith("0 attempts, not tried yet")
    assert lines[4] == "4 callbacks"
    assert "(there may be more" in tool("callbacks", "--limit", "2").splitlines()[2]
    everything = listed + tool("callbacks", "--json") + tool("jobs") + tool("jobs", "--json")
    assert "a body" not in everything
    (job,) = json.loads(tool("jobs", "--json"))["jobs"]
    assert (job["id"], job["recipient"], job["status"], job["request_id"]) == ("a3", ANN, "new", "request-1")
    assert (job["failed_attempts"], job["last_error"]) == (3, "the network is overloaded")
    assert job["last_attempt_at"] == choices.utc(int((NOW - 10) * 1000))
    line = tool("jobs").splitlines()[0]
    assert line.startswith("a3  491700000001  shard 0  ")
    assert "old, new, 3 attempts failed, the last " in line
    assert line.endswith(" ago  the network is overloaded")


def test_one_row_is_counted_in_the_singular(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tool("jobs", "--limit", "1").splitlines()[-1].startswith("1 job (")
    assert tool("callbacks", "--recipient", ANN, "--status", "dead").splitlines()[-1] == "1 callback"
    assert tool("callbacks").splitlines()[-1] == "4 callbacks"
    with pytest.raises(guard.CommandFailure, match="1 callback would be deleted: confirm with --yes"):
        tool("purge", "--recipient", ANN)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or "no")  # type: ignore[func-returns-value]
    with pytest.raises(guard.CommandFailure, match="nothing was deleted"):
        tool("purge", "--recipient", ANN)
    assert asked == ["Type 1 to delete it: "]


def test_a_job_without_failed_attempts_is_listed_without_attempts(tool: Tool, data_dir: Path) -> None:
    in_database(
        data_dir, lambda connection: job_errors.execute(connection, [job_errors.JobErrorChanges(deleted=["a3"])])
    )
    assert tool("jobs").splitlines()[0].endswith("old, new")
    (job,) = json.loads(tool("jobs", "--json"))["jobs"]
    assert (job["failed_attempts"], job["last_error"], job["last_attempt_at"]) == (0, None, None)


def test_messages_are_deleted_by_the_shard_owner_which_reports_those_kept(tool: Tool, coreapp: Coreapp) -> None:
    assert tool("purge-jobs", "--yes", "--shard", "0") == (
        "1 message is deleted and fails; 1 was sent, has changed or is not a message, and stays\n"
    )
    request = coreapp.requests[0]
    assert (request.ids, request.shard, request.choice, request.statuses) == (["a3", "b3"], 0, "shard 0", [])
    assert json.loads(tool("purge-jobs", "--yes", "--json", "--status", "encrypted")) == {"purged": 0, "changed": 1}
    assert (coreapp.requests[1].ids, coreapp.requests[1].statuses) == (["b3"], ["encrypted"])
    assert json.loads(tool("purge-jobs", "--yes", "--json", "--recipient", "1")) == {"purged": 0, "changed": 0}
    assert tool("purge-jobs", "--yes", "--since", "1s", "--recipient", ANN).startswith("no jobs are since ")


def test_deleting_messages_needs_a_choice_and_a_typed_number(
    tool: Tool, coreapp: Coreapp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(guard.CommandFailure, match="select messages"):
        tool("purge-jobs", "--yes")
    with pytest.raises(guard.CommandFailure, match="2 jobs would be deleted: confirm with --yes"):
        tool("purge-jobs", "--shard", "0")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: "1")
    with pytest.raises(guard.CommandFailure, match="nothing was deleted"):
        tool("purge-jobs", "--shard", "0")
    assert coreapp.requests == []
    monkeypatch.setattr("builtins.input", lambda prompt: "2")
    assert "1 message is deleted and fails" in tool("purge-jobs", "--shard", "0")


def test_messages_of_a_shard_without_an_owner_are_not_deleted(tool: Tool) -> None:
    with pytest.raises(guard.CommandFailure, match="no Coreapp owns shard 0"):
        tool("purge-jobs", "--yes", "--status", "new")
    assert len(json.loads(tool("jobs", "--json"))["jobs"]) == 1


def test_the_audit_distinguishes_purges_of_messages_and_callbacks(tool: Tool, data_dir: Path) -> None:
    purges = [
        CallbackPurgeRow(1000, 0, "ann@desk", "dead", 2),
        CallbackPurgeRow(1000, 0, "ben@desk", "new", 5, callback_purges.JOBS),
    ]
    for purge in purges:
        in_database(data_dir, lambda connection, purge=purge: callback_purges.add(connection, purge))
    assert tool("audit").splitlines() == [
        "1970-01-01T00:00:01Z  purge   2 callbacks of shard 0: dead  ann@desk",
        "1970-01-01T00:00:01Z  purge   5 jobs of shard 0: new  ben@desk",
    ]
    audit = json.loads(tool("audit", "--json"))["audit"]
    assert [(entry["queue"], entry["deleted"]) for entry in audit] == [("callbacks", 2), ("jobs", 5)]


def test_the_audit_lists_contents_that_were_shown(tool: Tool, data_dir: Path) -> None:
    def add(connection: Connection) -> Awaitable[None]:
        entry = audit_entries.make("15550000000", AuditAction.SHOW_MESSAGE, "gBEG1", by="ann (console)", at=2000)
        return audit_entries.add(connection, entry)

    in_database(data_dir, add)
    assert tool("audit") == "1970-01-01T00:00:02Z  show message gBEG1 of 15550000000  ann (console)\n"
    assert json.loads(tool("audit", "--json"))["audit"] == [
        {
            "at": "1970-01-01T00:00:02Z",
            "by": "ann (console)",
            "action": "show_message",
            "number": "15550000000",
            "subject": "gBEG1",
        }
    ]


def test_callbacks_are_chosen_by_status_time_recipient_and_event(tool: Tool) -> None:
    assert events(tool("callbacks", "--json", "--status", "dead")) == ["evt_1", "evt_2"]
    assert events(tool("callbacks", "--json", "--status", "dead", "--status", "failing")) == ["evt_1", "evt_2", "evt_3"]
    assert events(tool("callbacks", "--json", "--recipient", "+" + BEN)) == ["evt_2", "evt_3"]
    assert events(tool("callbacks", "--json", "--since", "2h", "--until", "20m")) == ["evt_2", "evt_3"]
    assert events(tool("callbacks", "--json", "--event", "evt_4", "--event", "1")) == ["evt_1", "evt_4"]
    assert events(tool("callbacks", "--json", "--shard", "1")) == []


def test_a_replay_without_an_owner_keeps_event_ids_and_releases_the_shard(tool: Tool, data_dir: Path) -> None:
    assert tool("replay", "--recipient", BEN) == "2 callbacks are due now, with the same event ids\n"
    found = {entry["event_id"]: entry for entry in json.loads(tool("callbacks", "--json"))["callbacks"]}
    assert found["evt_1"]["status"] == "dead"
    assert (found["evt_2"]["status"], found["evt_2"]["attempts"]) == ("pending", 0)
    assert (found["evt_3"]["status"], found["evt_3"]["next_attempt_at"]) == ("failing", "1970-01-01T00:00:00Z")
    audit = json.loads(tool("audit", "--json"))["audit"]
    assert [(entry["action"], entry["event_id"]) for entry in audit] == [("replay", "evt_2"), ("replay", "evt_3")]
    (owner,) = in_database(data_dir, shards.list_owners)
    assert (owner.node, owner.epoch) == ("", 1)
    assert json.loads(tool("replay", "--json", "--status", "dead", "--since", "1m")) == {"replayed": 0}


def test_a_purge_deletes_only_dead_letters_by_default_and_is_audited(tool: Tool) -> None:
    assert tool("purge", "--yes", "--recipient", ANN) == "1 callback is deleted\n"
    assert events(tool("callbacks", "--json")) == ["evt_2", "evt_3", "evt_4"]
    assert json.loads(tool("purge", "--yes", "--json", "--status", "pending", "--status", "failing")) == {
        "purged": 2,
        "changed": 0,
    }
    assert events(tool("callbacks", "--json")) == ["evt_2"]
    audit = json.loads(tool("audit", "--json"))["audit"]
    assert [(entry["action"], entry["deleted"], entry["choice"]) for entry in audit] == [
        ("purge", 1, f"dead, recipient {ANN}"),
        ("purge", 2, "pending/failing"),
    ]
    assert tool("audit", "--until", "1h") == ""
    assert tool("purge", "--yes", "--shard", "5") == "no callbacks are dead, shard 5\n"


def test_a_purge_needs_its_number_to_be_typed(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(guard.CommandFailure, match="2 callbacks would be deleted: confirm with --yes"):
        tool("purge")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    request: list[str] = []

    def answer(words: str) -> Callable[[str], str]:
        return lambda prompt: request.append(prompt) or words  # type: ignore[func-returns-value]

    monkeypatch.setattr("builtins.input", answer("y"))
    with pytest.raises(guard.CommandFailure, match="nothing was deleted"):
        tool("purge")
    monkeypatch.setattr("builtins.input", answer("2"))
    assert tool("purge").splitlines()[-1] == "2 callbacks are deleted"
    assert request == ["Type 2 to delete them: "] * 2


def test_callbacks_replayed_during_the_confirmation_of_a_purge_are_kept(
    tool: Tool, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def confirm(prompt: str) -> str:
        # Another process takes it, while the tool waits in its event loop.
        with ThreadPoolExecutor() as others:
            others.submit(in_database, data_dir, lambda connection: callbacks.take_dead(connection, 0, 0, [2])).result()
        return "2"

    monkeypatch.setattr("builtins.input", confirm)
    assert tool("purge").splitlines()[-1] == "1 callback is deleted; 1 has changed, and stays"
    assert events(tool("callbacks", "--json")) == ["evt_2", "evt_3", "evt_4"]


def test_a_shard_with_an_unreachable_owner_is_untouched_until_its_lease_expires(tool: Tool, data_dir: Path) -> None:
    async def own(connection: Connection) -> None:
        lease = await shards.claim(connection, 0, owner="a", address="127.0.0.1:1", heartbeat_timeout=30.0)
        assert lease is not None

    in_database(data_dir, own)
    with pytest.raises(guard.CommandFailure, match=r"the Coreapp at 127\.0\.0\.1:1 cannot be reached"):
        tool("replay")
    assert events(tool("callbacks", "--json", "--status", "dead")) == ["evt_1", "evt_2"]

    async def die(connection: Connection) -> None:
        await connection.execute(shards.table.update().values(heartbeat_at=0))

    in_database(data_dir, die)
    assert tool("replay") == "3 callbacks are due now, with the same event ids\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("callbacks", "--since", "yesterday"), "--since 'yesterday' is neither a time like"),
        (("callbacks", "--status", "new"), "--status new is none of pending, failing, dead"),
        (("jobs", "--status", "dead"), "--status dead is none of new, encrypted"),
        (("jobs", "--kind", "x"), "--kind and --event apply to callbacks only"),
        (("purge-jobs", "--event", "evt_1"), "--kind and --event apply to callbacks only"),
        (("purge-jobs", "--status", "dead"), "--status dead is none of new, encrypted"),
        (("callbacks", "--event", "evt_?"), "'evt_\\?' is not an event id"),
        (("replay", "--status", "pending"), "--status pending is none of failing, dead"),
    ],
)
def test_invalid_choices_are_rejected(tool: Tool, words: Sequence[str], message: str) -> None:
    with pytest.raises(guard.CommandFailure, match=message):
        tool(*words)


def test_times_without_a_time_zone_are_utc() -> None:
    assert choices.parse_time("2023-11-14T22:14:20Z", "--since", 0) == 1_700_000_060_000
    assert choices.parse_time("2023-11-14T23:14:20+01:00", "--since", 0) == 1_700_000_060_000
    assert choices.parse_time("2023-11-14T22:14:20", "--since", 0) == 1_700_000_060_000
    assert choices.parse_time("90m", "--since", 10_000) == 4_600_000
    assert choices.parse_time("", "--since", 10_000) == 0
    assert [queue_pages.age(0, seconds) for seconds in (5, 119, 120, 7200, 172_800)] == ["5s", "119s", "2m", "2h", "2d"]


def test_items_in_quarantine_are_listed_without_bodies_and_released(tool: Tool, data_dir: Path) -> None:
    rows = [
        Suspect("job", "m-1", "", 3, "the process ended while it handled this", 1_000),
        Suspect("delivery", "e-1", BEN, 3, "RuntimeError: x", 2_000, BODY),
        Suspect("delivery", "e-2", "", 1, "RuntimeError: y", 3_000),
    ]

    async def fill_in(connection: Connection) -> None:
        await jobs.enqueue(connection, [Job("m-1", 0, ME, ANN, 0, "", BODY, 1)])
        await quarantine.save(connection, rows)

    in_database(data_dir, fill_in)
    items = json.loads(tool("quarantine", "--json"))["items"]
    assert [(item["kind"], item["id"], item["recipient"], item["status"], item["attempts"]) for item in items] == [
        ("delivery", "e-1", BEN, "quarantined", 3),
        ("delivery", "e-2", None, "suspect", 1),
        ("job", "m-1", ANN, "quarantined", 3),
    ]
    text = tool("quarantine", "--status", "quarantined")
    assert "e-2" not in text
    assert f"job  m-1  {ANN}  quarantined, 3 attempts" in text
    assert "nobody may see" not in text
    assert [i["id"] for i in json.loads(tool("quarantine", "--recipient", ANN, "--json"))["items"]] == ["m-1"]
    assert [i["id"] for i in json.loads(tool("quarantine", "--kind", "delivery", "--json"))["items"]] == ["e-1", "e-2"]

    assert json.loads(tool("release", "--id", "e-1", "--json")) == {"released": 1}
    assert json.loads(tool("release", "--id", "e-2", "--json")) == {"released": 0}
    assert "1 item is handled again" in tool("release")

    async def read(connection: Connection) -> Sequence[Suspect]:
        return await quarantine.find(connection, [Item("job", "m-1"), Item("delivery", "e-1")])

    assert {(row.id, row.attempts, row.body) for row in in_database(data_dir, read)} == {
        ("m-1", 0, None),
        ("e-1", 0, BODY),
    }
    assert [i["status"] for i in json.loads(tool("quarantine", "--json"))["items"]] == [
        "released",
        "suspect",
        "released",
    ]


@pytest.mark.parametrize("action", ["status", "jobs", "callbacks", "replay"])
def test_a_number_that_the_installation_does_not_have_is_reported(tool: Tool, action: str) -> None:
    with pytest.raises(guard.CommandFailure, match="15551112222 is not a number of this installation"):
        tool(action, "--number", "+15551112222")
    tool("jobs", "--number", "+15550000000")


@pytest.mark.parametrize("action", ["purge-jobs", "jobs", "purge", "replay", "callbacks"])
def test_an_id_of_the_quarantine_is_refused_rather_than_selecting_every_row(
    tool: Tool, coreapp: Coreapp, action: str
) -> None:
    with pytest.raises(guard.CommandFailure, match="--id"):
        tool(action, "--id", "a3", *(["--yes"] if action.startswith("purge") else []))
    assert coreapp.requests == []


@pytest.mark.parametrize("option", [("--shard", "7"), ("--event", "evt_1")])
@pytest.mark.parametrize("action", ["release", "quarantine"])
def test_an_option_that_selects_no_item_of_the_quarantine_is_refused(
    tool: Tool, data_dir: Path, action: str, option: tuple[str, str]
) -> None:
    items = [Suspect("delivery", "e-1", BEN, 3, "RuntimeError: x", 2_000, BODY)]
    in_database(data_dir, lambda connection: quarantine.save(connection, items))
    with pytest.raises(guard.CommandFailure, match=option[0]):
        tool(action, *option)
    assert [item["status"] for item in json.loads(tool("quarantine", "--json"))["items"]] == ["quarantined"]


@pytest.mark.parametrize("action", ["status", "audit"])
@pytest.mark.parametrize("options", [("--shard", "7"), ("--number", ME), ("--status", "dead"), ("--kind", "x")])
def test_a_selection_of_rows_is_refused_where_it_has_no_effect(
    tool: Tool, action: str, options: tuple[str, ...]
) -> None:
    with pytest.raises(guard.CommandFailure, match=f"{options[0]} does not apply to {action}"):
        tool(action, *options)
