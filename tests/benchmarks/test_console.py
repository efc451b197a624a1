"""Combinations of filters that the benchmark of the console requests: each selects rows."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from benchmarks import console, console_rows
from benchmarks.console_rows import FilledRows
from tidings.wire import ids

NOW = 1_790_000_000_000


def test_a_page_far_back_is_inside_the_range_of_times() -> None:
    seen = 0
    for page in console.list_pages(FilledRows(NOW, 1, 1, "gBEGsubject")):
        fields = {name: value for name, (value,) in parse_qs(urlsplit(page.path).query).items()}
        if "before" not in fields:
            continue
        first, last = NOW - console_rows.MESSAGE_DAYS * console_rows.DAY, NOW
        if "since" in fields:
            first, last = (console._seconds(fields[name]) * 1000 for name in ("since", "until"))
        if page.title == "callbacks":
            assert first < (int(fields["before"]) >> 5) / 1000 < last, page.path
        else:
            bound = ids.bound if fields["direction"] == "sent" else ids.bound_of_received
            assert bound(first / 1000) < fields["before"] < bound(last / 1000), page.path
        seen += "since" in fields
    assert seen > 100


def test_every_combination_has_one_address() -> None:
    paths = [page.path for page in console.list_pages(FilledRows(NOW, 1, 1, "gBEGsubject"))]
    assert len(set(paths)) == len(paths)
    assert any(re.search("since=.*before=", path) for path in paths)
