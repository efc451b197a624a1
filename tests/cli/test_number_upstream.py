"""`tidings number upstream` checks ids and secrets at the Cloud API before it stores anything."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import graph_server
from tests.cli.graph_server import Graph, P, W
from tests.cli.support import run

NUMBER = "15550000000"


@pytest.fixture
def graph() -> Iterator[Graph]:
    with graph_server.serving() as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    variables = {
        "TIDINGS_DATA_DIR": str(tmp_path),
        "TIDINGS_BUSINESS_NUMBER": NUMBER,
        "TIDINGS_OUTGOING_ALLOW": "127.0.0.0/8",
        "TIDINGS_CLOUD_TOKEN": "T0KEN",
        "TIDINGS_CLOUD_APP_SECRET": "S3CRET",
    }
    assert run("migrate", **variables).returncode == 0
    return variables


def switch(graph: Graph, *more: str, **variables: str) -> Any:
    ids = ("--base-url", graph.url, "--phone-number-id", P, "--waba-id", W)
    return run("number", "upstream", NUMBER, "cloud", *ids, *more, **variables)


def assert_refused(done: Any, word: str) -> None:
    """Check that a command failed with one line that has a word."""
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    assert word in done.stderr.rstrip("\n").splitlines()[-1], done.stderr


def rows(tmp_path: Path) -> list[Any]:
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        return connection.execute("SELECT account, phone_number_id, waba_id, rate FROM upstreams").fetchall()


def test_a_number_is_switched_shown_and_switched_back(graph: Graph, data: dict[str, str], tmp_path: Path) -> None:
    assert run("number", "upstream", NUMBER, **data).stdout == f"{NUMBER} sends through the network\n"
    done = switch(graph, **data)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout
    assert rows(tmp_path) == [(NUMBER, P, W, 80)]
    (listed,) = json.loads(run("number", "list", "--json", **data).stdout)["numbers"]
    assert (listed["number"], listed["upstream"]) == (NUMBER, "cloud")
    shown = run("number", "upstream", NUMBER, **data).stdout
    assert re.search(r"^callback         /cloud/callbacks/\S{32}$", shown, re.MULTILINE)
    assert re.search(r"^verify token     \S{32}$", shown, re.MULTILINE)
    # Neither the command nor the database shows a secret.
    assert "T0KEN" not in shown + done.stdout
    assert b"T0KEN" not in (tmp_path / "business.db").read_bytes()
    assert graph.requests[0].endswith(" Bearer T0KEN")
    assert "appsecret_proof=" in graph.requests[0]

    back = run("number", "upstream", NUMBER, "network", **data)
    assert back.stdout == f"{NUMBER} sends through the network\n"
    assert rows(tmp_path) == []


def test_omitted_options_keep_their_stored_values(graph: Graph, data: dict[str, str], tmp_path: Path) -> None:
    before = switch(graph, **data).stdout
    secret = tmp_path / "token"
    secret.write_text("NEW\n")
    bare = {name: value for name, value in data.items() if not name.startswith("TIDINGS_CLOUD_")}
    done = run(
        *("number", "upstream", NUMBER, "cloud", "--messages-per-second", "1000"),
        TIDINGS_CLOUD_TOKEN_FILE=str(secret),
        **bare,
    )
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path) == [(NUMBER, P, W, 1000)]
    assert graph.requests[-1].endswith(" Bearer NEW")
    callback = re.compile(r"^(?:callback|verify token).*$", re.MULTILINE)
    assert callback.findall(done.stdout) == callback.findall(before)


@pytest.mark.parametrize(
    ("path", "response", "word"),
    [
        (P, (401, {"error": {"code": 190, "message": "Invalid OAuth access token"}}), "replace the token"),
        (
            P,
            (400, {"error": {"code": 100, "error_subcode": 33, "message": "Unsupported get request."}}),
            "compare the ids",
        ),
        (P, (403, {"error": {"code": 10, "message": "(#10) Permission denied"}}), "permissions"),
        (P, (200, ["not", "an", "object"]), "check --base-url"),
        ("phone_numbers", (200, {"data": [{"id": "1"}]}), "has no phone number with the id"),
        ("phone_numbers", (400, {"error": {"code": 100, "message": "x"}}), "compare the ids"),
    ],
)
def test_wrong_ids_and_secrets_are_reported_and_nothing_is_stored(
    graph: Graph, data: dict[str, str], tmp_path: Path, path: str, response: tuple[int, Any], word: str
) -> None:
    graph.responses[path] = response
    done = switch(graph, **data)
    assert_refused(done, word)
    assert rows(tmp_path) == []
    assert switch(graph, "--unchecked", **data).returncode == 0
    assert rows(tmp_path) == [(NUMBER, P, W, 80)]


def test_a_problem_that_does_not_prevent_sending_is_a_warning(
    graph: Graph, data: dict[str, str], tmp_path: Path
) -> None:
    graph.responses[P] = (200, {"id": P, "status": "FLAGGED"})
    graph.responses["subscribed_apps"] = (200, {"data": []})
    done = switch(graph, **data)
    assert done.returncode == 0, done.stderr
    assert "warning: the number's status is FLAGGED" in done.stdout
    assert "warning: no app gets the webhooks of the WABA" in done.stdout


def test_wrong_options_are_refused_in_one_line(graph: Graph, data: dict[str, str]) -> None:
    command = ("number", "upstream", NUMBER, "cloud")
    assert_refused(run(*command, **data), "--phone-number-id: give the id")
    assert_refused(run(*command, "--phone-number-id", "x", **data), "--phone-number-id: give the id")
    ids = ("--phone-number-id", P, "--waba-id", W)
    assert_refused(run(*command, *ids, "--base-url", "ftp://x", **data), "--base-url")
    assert_refused(run(*command, *ids, "--base-url", "http://u@x/v25.0", **data), "--base-url")
    for rate in ("0", "1001", "x", "\u0661"):
        refused = run(*command, *ids, "--messages-per-second", rate, **data)
        assert_refused(refused, "is not a number of messages from 1 to 1000")
    without = {**data, "TIDINGS_CLOUD_APP_SECRET": ""}
    assert_refused(run(*command, *ids, **without), "TIDINGS_CLOUD_APP_SECRET is not set")
    assert_refused(run("number", "upstream", "15550000009", **data), "is not a number of this installation")


def test_a_private_base_url_needs_to_be_allowed(graph: Graph, data: dict[str, str], tmp_path: Path) -> None:
    done = switch(graph, **{**data, "TIDINGS_OUTGOING_ALLOW": "none"})
    assert_refused(done, "TIDINGS_OUTGOING_ALLOW")
    assert rows(tmp_path) == []
