"""Result of the crash test as a table: one row per phase, and one for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from harness import ledger
from tests.crash.scene import Phase, Scene, recovery_seconds, verdict

COLUMNS = (
    *("phase", "sent", "accepted", "unanswered", "in doubt", "refused", "shown", "unconfirmed"),
    *("lost", "unexpected", "shown twice", "status missing", "backwards", "corrupt", "failed", "renamed", "stray"),
    *("reply missing", "replied twice"),
    *("repeated callbacks", "recovery s"),
)
NOTES = """\
sent = accepted (2xx) + unanswered (no answer: counted apart, never sent again) + in doubt (an error that leaves open
whether the message was taken) + refused. shown: messages that recipients displayed. unconfirmed: failed because it is
unknown whether they were shown (through the Cloud API behind). Faults: lost (accepted, never
shown), unexpected (shown, though not accepted, unanswered or in doubt), shown twice, status missing (of sent,
delivered, read), backwards (first arrivals out of order), corrupt (another text or recipient), failed (status failed),
renamed (one status under two event ids), stray (statuses of messages that nobody has), reply missing (of a recipient
that echoes), replied twice (an echo under two ids). repeated callbacks: came again
under their event id, as receivers must expect. recovery s: the longest from a trouble to all three callbacks of a
message sent after it."""


def rows(scene: Scene) -> list[list[str]]:
    """Return a row per phase, then the balance of everything, which also includes what belongs to no phase."""
    found = [_row(phase.name, verdict([phase], scene), recovery_seconds(phase, scene)) for phase in scene.phases]
    slowest = max((seconds for phase in scene.phases if (seconds := recovery_seconds(phase, scene))), default=None)
    return [*found, _row("all", verdict(scene.phases, scene), slowest)]


def markdown(scene: Scene) -> str:
    """Return the table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [*_head(), *rows(scene)])


def aligned(scene: Scene) -> str:
    """Return the table for a terminal."""
    lines = [list(COLUMNS), *rows(scene)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _head() -> list[Sequence[str]]:
    return [COLUMNS, ["---", *["--:"] * (len(COLUMNS) - 1)]]


def _row(name: str, found: ledger.Verdict, recovery: float | None) -> list[str]:
    counts = [found.requests, found.accepted, found.unanswered, found.in_doubt, found.refused]
    counts += [found.shown, found.unconfirmed]
    faults = [len(getattr(found, fault)) for fault in ledger.FAULTS]
    seconds = "–" if recovery is None else f"{recovery:.1f}"
    return [name, *map(str, counts), *map(str, faults), str(found.repeats), seconds]


def problems(scene: Scene, *, settled: bool) -> list[str]:
    """Return the problems, one line each; empty when the test has passed."""
    found = [f"{phase.name}: {phase.problem}" for phase in scene.phases if phase.problem]
    if not settled:
        found.append("not everything was settled in time")
    balance = dataclasses.replace(verdict(scene.phases, scene), **dict.fromkeys(scene.tolerated, ()))
    return [*found, *balance.describe(examples=5).splitlines()]


def describe_phase(phase: Phase) -> str:
    """Return a progress line for the console."""
    accepted = sum(sent.request.accepted for sent in phase.sent)
    return f"{phase.name}: {accepted} of {len(phase.sent)} accepted, {len(phase.troubles)} troubles"
