"""Evaluation of the Webapps' reports: Coreapps that no Webapp reaches own no shards (decision 56)."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Sequence

from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.webapp_unreached import UnreachedReport

log = logging.getLogger(__name__)

# Seconds without a Webapp that reaches a Coreapp, after which the Coreapp counts as cut off and gives up its shards.
CUT_OFF = 5.0
# Seconds that Webapps have to reach a Coreapp that has just started, or to report that they do not. Until then it is
# assigned shards only if there is no other Coreapp.
PROBATION = 4.0
# Seconds for which all polls must find this process suspected before it gives up its shards, and the longest pause in
# seconds between two of these polls. A process that was suspended reads reports from that time, which the Webapps are
# about to withdraw.
CONFIRMATION, LONGEST_PAUSE = 1.0, 1.5
# Seconds without a change of the cut-off Coreapps before shards are moved to balance their numbers.
RETURN = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class CoreappReach:
    """Live Coreapps that Webapps do not reach, by name."""

    # Coreapps that no Webapp has reached for `CUT_OFF` seconds.
    cut_off: frozenset[str] = frozenset()
    # Coreapps in `cut_off`, those that no Webapp reaches now, and those that have just started.
    suspected: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """True while it is undecided, for seconds, whether a suspected Coreapp is cut off. Shards do not move then."""
        return self.suspected != self.cut_off

    def places(self, live: frozenset[str]) -> frozenset[str]:
        """Return the Coreapps that may be assigned shards: those not suspected, else those not cut off, else all."""
        return live - self.suspected or live - self.cut_off or live


def evaluate(reports: Sequence[UnreachedReport], members: Sequence[NodeRecord], live: Collection[str]) -> CoreappReach:
    """Evaluate which live Coreapps are reached, by the reports of the live Webapps.

    A Coreapp that one Webapp reaches is not suspected, even if all others do not reach it: it serves at least that
    Webapp. No Coreapp is cut off while there are no Webapps, or while a Coreapp of an earlier release is live, which
    would return the shards.
    """
    considered = [member for member in members if member.node.name in live]
    if not reports or not all(member.evaluates_reports for member in considered):
        return CoreappReach()
    cut_off, suspected = set(), set()
    for member in considered:
        name, address = member.node.name, member.node.address
        if all(address in report.unreached for report in reports):
            suspected.add(name)
            # A report from before its start is about the process that it replaces.
            if min(member.age, *(report.unreached[address] for report in reports)) >= CUT_OFF:
                cut_off.add(name)
        elif member.age < PROBATION:
            suspected.add(name)
    return CoreappReach(frozenset(cut_off), frozenset(suspected))


class OwnReach:
    """Effect of the reports on this process, over successive polls."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._reach = CoreappReach()
        # Loop times: of the first poll that found this process suspected, without a pause since; of the latest poll; of
        # the latest poll that found a change of the cut-off Coreapps.
        self._suspected_since = math.inf
        self._polled_at = -math.inf
        self._changed_at = -math.inf
        self._shown = ""

    def update(self, reach: CoreappReach, live: frozenset[str], now: float) -> bool:
        """Record the result of one poll. Returns whether this process has to give up its shards.

        now: loop time of the poll
        """
        is_cut_off = self._node in reach.cut_off
        if self._node not in reach.suspected:
            self._suspected_since = math.inf
        elif self._suspected_since == math.inf or now - self._polled_at > LONGEST_PAUSE:
            self._suspected_since = now
        if reach.cut_off != self._reach.cut_off:
            self._changed_at = now
        self._reach, self._polled_at = reach, now
        has_other = self._node not in reach.places(live)
        if is_cut_off:
            self._show("moves" if has_other else "no_other_is_reached")
        else:
            self._show("")
        return is_cut_off and has_other and now - self._suspected_since >= CONFIRMATION

    def is_settled(self, now: float) -> bool:
        """Return whether shards may be moved to balance their numbers."""
        return not self._reach.is_open and now - self._changed_at >= RETURN

    def _show(self, state: str) -> None:
        if state == self._shown:
            return
        self._shown = state
        if state:
            log.warning("coreapp.cut_off", extra={"node": self._node, "shards": state})
        else:
            log.info("coreapp.reached_again", extra={"node": self._node})
