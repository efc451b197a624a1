"""The tables of docs/cloud-api.md and the calls that are served agree."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, error
from tidings.wire.cloud.identity import ObjectKind
from webapp.api.cloud import paths
from webapp.api.cloud.endpoints import ENDPOINTS, MEDIA, UPLOAD
from webapp.api.messages.cloud_types import CLOUD_MODELS

PAGE = Path(__file__).parents[3] / "docs" / "cloud-api.md"
METHODS = ("GET", "POST", "DELETE")
NODES = {
    "P": ObjectKind.NUMBER,
    "W": ObjectKind.WABA,
    "A": ObjectKind.APP,
    "B": ObjectKind.BUSINESS,
    "{template}": ObjectKind.TEMPLATE,
    "{media}": MEDIA,
    "upload:…": UPLOAD,
}
IDS = {ObjectKind.NUMBER: NUMBER, ObjectKind.WABA: WABA, ObjectKind.APP: APP}
VERDICTS = ("honoured", "tolerated", "refused")
# Rows whose first cell names calls in other words than a path.
DOWNLOAD = "`GET` of the URL"
CODE_3, CODE_100 = "(code 3)", "(100/33)"


@dataclasses.dataclass(frozen=True)
class Row:
    """Row of a table: its calls, as the keys of `ENDPOINTS`, and its text about them."""

    calls: Sequence[tuple[str, str, str]]
    words: Sequence[str]  # names in the first cell that are no calls
    verdict: str


def cells() -> Iterator[tuple[str, str]]:
    for line in PAGE.read_text().splitlines():
        found = re.fullmatch(r"\| (.+?) \| (.+) \|", line)
        if found and any(verdict in found[2] for verdict in VERDICTS):
            yield found[1], found[2]


def key(method: str, path: str) -> tuple[str, str, str]:
    first, _, edge = path.removeprefix("/").partition("/")
    return NODES.get(first, first), edge, method


def rows() -> Sequence[Row]:
    found = []
    for first, verdict in cells():
        calls: list[tuple[str, str, str]] = []
        words, methods = [], []
        for name in re.findall(r"`([^`]+)`", first):
            method, _, path = name.rpartition(" ")
            if name in METHODS:
                methods.append(name)
            elif path.startswith("/"):
                wanted = [*methods, method] if method else METHODS
                calls += [key(one, path) for one in wanted]
                methods = []
            else:
                words.append(name)
        if first == DOWNLOAD:
            calls.append((paths.ATTACHMENTS, "attachments", "GET"))
        found.append(Row(calls, words, verdict))
    return found


def said(*verdicts: str) -> Sequence[Row]:
    return [row for row in rows() if row.verdict.startswith(verdicts)]


def test_every_call_that_is_served_is_in_a_table() -> None:
    shown = {call for row in rows() if not row.verdict.startswith("refused") for call in row.calls}
    # The first sentence of the section about messages names this one.
    assert ENDPOINTS.keys() - shown == {(ObjectKind.NUMBER, "messages", "POST")}


def test_every_call_that_the_tables_honour_or_tolerate_is_served() -> None:
    found = said("honoured", "tolerated", "`pin`", "`user_identity_change`")
    assert len(found) > 20
    for row in found:
        missing = [call for call in row.calls if call not in ENDPOINTS]
        # A path without methods has those of its calls.
        assert not missing or (missing != list(row.calls) and len(row.calls) % len(METHODS) == 0), row
    assert not [call for row in said("refused") for call in row.calls if call in ENDPOINTS]


async def test_every_call_that_the_tables_refuse_is_refused_so(cloud: Cloud) -> None:
    called = 0
    for row in said("refused"):
        if CODE_3 not in row.verdict and CODE_100 not in row.verdict:
            continue
        expected = (3, None) if CODE_3 in row.verdict else (100, 33)
        edges = [word for word in row.words if word != "W"]
        calls = [*row.calls, *((ObjectKind.WABA, word, "GET") for word in edges)]
        for kind, edge, method in calls:
            node = IDS.get(kind, kind) if isinstance(kind, ObjectKind) else kind
            response = await cloud.http.request(method, f"/v25.0/{node}/{edge}", json={} if method == "POST" else None)
            found = response.json()["error"]
            assert (found["code"], found.get("error_subcode")) == expected, (row, kind, edge, method)
            called += 1
    assert called > 15


@pytest.mark.parametrize("verdict", ["honoured", "refused"])
async def test_the_types_of_messages_are_accepted_or_refused_as_the_table_says(cloud: Cloud, verdict: str) -> None:
    section = PAGE.read_text().partition("| type | |\n|---|---|\n")[2].partition("\n\n")[0]
    checked = 0
    for line in section.splitlines():
        first, said_of_it = line.strip("|").split(" | ", 1)
        if not said_of_it.strip().startswith(verdict):
            continue
        for kind in re.findall(r"`(\w+)`", first):
            assert (kind in CLOUD_MODELS) == (verdict == "honoured"), kind
            response = await cloud.send(type=kind, **{"text": ..., kind: {}})
            # An empty object is refused in any case: for its content, or for its type.
            is_unknown = "Param type must be one of" in error(response)[2] or error(response)[1] == 3
            assert is_unknown == (verdict == "refused"), kind
            checked += 1
    assert checked >= 3
