"""Which Coreapps the Webapps reach, as the Webapps report it: those that none reaches own no shards (decision 56)."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Sequence

from tidings.storage.business.nodes import Member
from tidings.storage.business.webapp_unreached import Report

log = logging.getLogger(__name__)

# Seconds for which no Webapp has reached a Coreapp, after which it gives its shards up.
CUT_OFF = 5.0
# Seconds that Webapps have to reach a Coreapp that has just started, or to report that they do not. Before that it is
# given shards only where there is no other.
PROBATION = 4.0
# Seconds of polls, and the longest pause between two of them, that have to agree before this process gives its shards
# up: a process that stood still reads reports from that time, which Webapps are about to withdraw.
CONFIRMATION, LONGEST_PAUSE = 1.0, 1.5
# Seconds for which a Coreapp that was cut off has to be reached before shards move again.
RETURN = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """Names of live Coreapps. cut_off: those that no Webapp has reached for 5 s; suspected: these, those that no Webapp
    reaches now, and those that have just started."""

    cut_off: frozenset[str] = frozenset()
    suspected: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether it will turn out within seconds which of the suspected are cut off. Shards do not move until then."""
        return self.suspected != self.cut_off

    def places(self, live: frozenset[str]) -> frozenset[str]:
        """The Coreapps that may be given shards. All count where none is better than another."""
        return live - self.suspected or live - self.cut_off or live


def judge(reports: Sequence[Report], members: Sequence[Member], live: Collection[str]) -> Reach:
    """Judge the live Coreapps by the reports of the live Webapps.

    One Webapp that reaches a Coreapp outweighs all that do not: what some reach serves at least them. Without Webapps,
    and beside a Coreapp of an earlier release, which would give the shards back, nobody is cut off.
    """
    considered = [member for member in members if member.node.name in live]
    if not reports or not all(member.heeds for member in considered):
        return Reach()
    cut_off, suspected = set(), set()
    for member in considered:
        name, address = member.node.name, member.node.address
        if all(address in report.unreached for report in reports):
            suspected.add(name)
            # A report from before its start is of the process that it replaces.
            if min(member.age, *(report.unreached[address] for report in reports)) >= CUT_OFF:
                cut_off.add(name)
        elif member.age < PROBATION:
            suspected.add(name)
    return Reach(frozenset(cut_off), frozenset(suspected))


class OwnReach:
    """What the reports mean for this process, from poll to poll."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._reach = Reach()
        # Loop times: of the first of the polls without a pause that found this process suspected, of the latest poll,
        # and of the latest poll that found other Coreapps cut off than the one before.
        self._suspected_since = math.inf
        self._polled_at = -math.inf
        self._changed_at = -math.inf
        self._shown = ""

    def update(self, reach: Reach, live: frozenset[str], now: float) -> bool:
        """Take one poll into account. Return whether this process has to give its shards up. now: the loop's time."""
        is_cut_off = self._node in reach.cut_off
        if self._node not in reach.suspected:
            self._suspected_since = math.inf
        elif self._suspected_since == math.inf or now - self._polled_at > LONGEST_PAUSE:
            self._suspected_since = now
        if reach.cut_off != self._reach.cut_off:
            self._changed_at = now
        self._reach, self._polled_at = reach, now
        has_other = self._node not in reach.places(live)
        self._show(("moves" if has_other else "no_other_is_reached") if is_cut_off else "")
        return is_cut_off and has_other and now - self._suspected_since >= CONFIRMATION

    def is_settled(self, now: float) -> bool:
        """Whether shards may move for the sake of even numbers."""
        return not self._reach.is_open and now - self._changed_at >= RETURN

    def _show(self, state: str) -> None:
        if state == self._shown:
            return
        self._shown = state
        if state:
            log.warning("coreapp.cut_off", extra={"node": self._node, "shards": state})
        else:
            log.info("coreapp.reached_again", extra={"node": self._node})
