"""Evaluation of the Webapps' reports: Coreapps that count as cut off, and when one of them gives up its shards."""

from __future__ import annotations

import logging
import math

import pytest

from coreapp.shard.reach import CoreappReach, OwnReach, evaluate
from tidings.storage.business.nodes import CoreappNode, NodeRecord
from tidings.storage.business.webapp_unreached import UnreachedReport

LIVE = frozenset({"a", "b"})


def member(name: str, *, age: float = math.inf, evaluates_reports: bool = True) -> NodeRecord:
    return NodeRecord(CoreappNode(name, "1", f"{name}:6252", 5.0), 0, 0, 0.0, age, evaluates_reports)


def report(**seconds: float) -> UnreachedReport:
    """Return the report of one Webapp."""
    return UnreachedReport("w:443", {f"{name}:6252": value for name, value in seconds.items()})


MEMBERS = [member("a"), member("b")]


def test_a_coreapp_is_cut_off_when_no_webapp_has_reached_it_for_5_seconds() -> None:
    assert evaluate([report(a=4.9), report(a=9.0)], MEMBERS, LIVE) == CoreappReach(frozenset(), frozenset("a"))
    assert evaluate([report(a=5.0), report(a=9.0)], MEMBERS, LIVE) == CoreappReach(frozenset("a"), frozenset("a"))
    assert evaluate([report(a=5.0)], MEMBERS, LIVE) == CoreappReach(frozenset("a"), frozenset("a"))


def test_a_coreapp_that_one_webapp_of_three_reaches_is_not_cut_off() -> None:
    assert evaluate([report(a=60.0), report(), report(a=60.0)], MEMBERS, LIVE) == CoreappReach()


def test_one_of_two_webapps_that_reaches_no_coreapp_moves_no_shard() -> None:
    assert evaluate([report(a=60.0, b=60.0), report()], MEMBERS, LIVE) == CoreappReach()


def test_no_coreapp_is_cut_off_without_webapps_or_beside_an_earlier_release() -> None:
    assert evaluate([], MEMBERS, LIVE) == CoreappReach()
    assert evaluate([report(a=60.0)], [member("a"), member("b", evaluates_reports=False)], LIVE) == CoreappReach()
    # A Coreapp that is not live does not matter.
    assert evaluate([report(a=60.0)], [*MEMBERS, member("c", evaluates_reports=False)], LIVE).cut_off == {"a"}


def test_a_report_from_before_the_start_of_a_coreapp_does_not_count() -> None:
    assert evaluate([report(a=60.0)], [member("a", age=4.0), member("b")], LIVE) == CoreappReach(
        frozenset(), frozenset("a")
    )
    assert evaluate([report(a=60.0)], [member("a", age=5.0), member("b")], LIVE).cut_off == {"a"}


def test_a_coreapp_that_has_just_started_is_suspected_until_webapps_could_report() -> None:
    assert evaluate([report()], [member("a"), member("b", age=3.9)], LIVE) == CoreappReach(frozenset(), frozenset("b"))
    assert evaluate([report()], [member("a"), member("b", age=4.0)], LIVE) == CoreappReach()
    assert evaluate([], [member("a"), member("b", age=0.0)], LIVE) == CoreappReach()


def test_shards_go_to_reached_coreapps_or_to_any_if_none_is_reached() -> None:
    live = frozenset("abc")
    assert CoreappReach().places(live) == live
    assert CoreappReach(frozenset("a"), frozenset("ab")).places(live) == {"c"}
    assert CoreappReach(frozenset("a"), frozenset("abc")).places(live) == {"b", "c"}
    assert CoreappReach(live, live).places(live) == live


CUT_OFF = CoreappReach(frozenset("a"), frozenset("a"))
SUSPECTED = CoreappReach(frozenset(), frozenset("a"))


def test_shards_are_released_after_one_second_of_polls_that_suspect_the_coreapp() -> None:
    own = OwnReach("a")
    assert not own.update(SUSPECTED, LIVE, 10.0)
    assert not own.update(SUSPECTED, LIVE, 11.0)
    assert own.update(CUT_OFF, LIVE, 11.25)


def test_a_resumed_coreapp_waits_for_new_reports_before_releasing_shards() -> None:
    own = OwnReach("a")
    assert not own.update(SUSPECTED, LIVE, 10.0)
    assert not own.update(CUT_OFF, LIVE, 20.0)
    assert not own.update(CUT_OFF, LIVE, 20.75)
    assert own.update(CUT_OFF, LIVE, 21.0)
    own = OwnReach("a")
    assert not own.update(CUT_OFF, LIVE, 20.0)
    assert not own.update(CoreappReach(), LIVE, 20.25)
    assert not own.update(CUT_OFF, LIVE, 21.25)


def test_no_shard_is_released_if_no_other_coreapp_is_reached(caplog: pytest.LogCaptureFixture) -> None:
    own = OwnReach("a")
    with caplog.at_level(logging.INFO):
        for reach, live in ((CUT_OFF, frozenset("a")), (CoreappReach(LIVE, LIVE), LIVE)):
            for now in range(10):
                assert not own.update(reach, live, float(now))
        own.update(CUT_OFF, LIVE, 10.0)
        own.update(CoreappReach(), LIVE, 10.0)
    shown = [(record.message, record.__dict__.get("shards")) for record in caplog.records]
    assert shown == [
        ("coreapp.cut_off", "no_other_is_reached"),
        ("coreapp.cut_off", "moves"),
        ("coreapp.reached_again", None),
    ]


def test_shards_return_when_the_coreapp_has_been_reached_for_10_seconds() -> None:
    own = OwnReach("b")
    own.update(CoreappReach(), LIVE, 0.0)
    assert own.is_settled(0.0)
    own.update(SUSPECTED, LIVE, 1.0)
    assert not own.is_settled(1.0), "it will turn out soon"
    own.update(CoreappReach(), LIVE, 2.0)
    assert own.is_settled(2.0)
    own.update(CUT_OFF, LIVE, 10.0)
    assert not own.is_settled(19.0)
    assert own.is_settled(20.0), "the others share what they have"
    own.update(CoreappReach(), LIVE, 30.0)
    assert not own.is_settled(39.0)
    own.update(SUSPECTED, LIVE, 39.5)
    assert not own.is_settled(41.0), "away again"
    own.update(CUT_OFF, LIVE, 42.0)
    own.update(CoreappReach(), LIVE, 45.0)
    assert not own.is_settled(54.0)
    assert own.is_settled(55.0)
