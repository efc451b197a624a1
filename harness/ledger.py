"""Balances what the sender wrote down, what the recipients showed and what the webhook got: pure functions.

A message is recognised by the SHA-256 of its text, so every text of a run must be different; that way a message whose
request got no answer, and whose id the sender therefore never learned, is still accounted for.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

STATUSES = ("sent", "delivered", "read")


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One `POST /v1/messages` as its sender saw it.

    status:     of HTTP; `None` when no whole answer came.
    message_id: from the answer, empty without one.
    """

    number: str
    digest: str
    status: int | None
    message_id: str = ""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def in_doubt(self) -> bool:
        """The server broke off while it worked on it: the message may have been taken. 503 says that it was not."""
        return self.status is not None and self.status >= 500 and self.status != 503


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """One line of a robot's log. attempt: how often the network had delivered it by then."""

    number: str
    message_id: str
    attempt: int
    digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """One status that the webhook got; their order in a list is the order of arrival."""

    event_id: str
    message_id: str
    status: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """One inbound message that the webhook got. digest: of its text."""

    number: str
    digest: str
    message_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The balance.

    requests = accepted + unanswered + in_doubt + refused. Neither those nor `repeats` are faults; all below them are.
    repeats: callbacks that came again under the same event id, as a receiver must expect.

    lost:           accepted, never shown.
    unexpected:     shown, though no request for it was accepted, unanswered or in doubt.
    shown_twice:    shown again, under the same id or another.
    status_missing: accepted or shown, and one of sent, delivered, read never came.
    backwards:      the first arrivals of its statuses were out of order.
    corrupt:        shown with another text than was sent under its id, or to another number.
    failed:         got the status failed.
    renamed:        the same status came under two event ids.
    stray:          statuses of messages that were neither accepted nor shown.
    reply_missing:  shown to a recipient that echoes, and the echo never came.
    replied_twice:  its echo came under two message ids.
    """

    requests: int
    accepted: int
    unanswered: int
    in_doubt: int
    refused: int
    shown: int
    repeats: int
    lost: tuple[str, ...]
    unexpected: tuple[str, ...]
    shown_twice: tuple[str, ...]
    status_missing: tuple[str, ...]
    backwards: tuple[str, ...]
    corrupt: tuple[str, ...]
    failed: tuple[str, ...]
    renamed: tuple[str, ...]
    stray: tuple[str, ...]
    reply_missing: tuple[str, ...]
    replied_twice: tuple[str, ...]

    def faults(self) -> dict[str, tuple[str, ...]]:
        """Those kinds of fault that were found, each with the messages concerned."""
        return {name: found for name in FAULTS if (found := getattr(self, name))}

    def describe(self, examples: int = 3) -> str:
        """One line a fault, for a person; empty when the books balance."""
        return "\n".join(
            f"{name.replace('_', ' ')}: {len(found)}, for example {', '.join(found[:examples])}"
            for name, found in self.faults().items()
        )


FAULTS = (
    "lost",
    "unexpected",
    "shown_twice",
    "status_missing",
    "backwards",
    "corrupt",
    "failed",
    "renamed",
    "stray",
    "reply_missing",
    "replied_twice",
)


def digest(text: str) -> str:
    """How the robots' log names a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def reconcile(
    requests: Sequence[Request],
    shown: Sequence[Shown],
    statuses: Sequence[Status],
    replies: Sequence[Reply] = (),
    *,
    echoing: str = "",
) -> Verdict:
    """Balance the books. Raises `ValueError` when two requests had the same text.

    echoing: what the numbers of recipients begin with who send each text back; empty when nobody does.
    """
    by_digest = {request.digest: request for request in requests}
    if len(by_digest) != len(requests):
        raise ValueError("two requests of the run have the same text")
    accepted = {request.message_id: request for request in requests if request.accepted}
    shown_digests = {line.digest for line in shown}
    shown_ids = {line.message_id for line in shown}
    must_report = list(dict.fromkeys([*accepted, *(line.message_id for line in shown)]))
    arrivals = _first_arrivals(statuses)
    return Verdict(
        requests=len(requests),
        accepted=sum(request.accepted for request in requests),
        unanswered=sum(request.status is None for request in requests),
        in_doubt=sum(request.in_doubt for request in requests),
        refused=sum(not (r.accepted or r.in_doubt or r.status is None) for r in requests),
        shown=len(shown_ids),
        repeats=len(statuses) - len({status.event_id for status in statuses}),
        lost=tuple(
            message_id
            for message_id, request in accepted.items()
            if message_id not in shown_ids and request.digest not in shown_digests
        ),
        unexpected=tuple(_unexpected(shown, accepted, by_digest)),
        shown_twice=tuple(_shown_twice(shown)),
        status_missing=tuple(
            message_id
            for message_id in must_report
            if "failed" not in arrivals.get(message_id, ()) and not set(STATUSES) <= set(arrivals.get(message_id, ()))
        ),
        backwards=tuple(message_id for message_id, order in arrivals.items() if not _is_forward(order)),
        corrupt=tuple(_corrupt(shown, accepted, by_digest)),
        failed=tuple(message_id for message_id, order in arrivals.items() if "failed" in order),
        renamed=tuple(_renamed(statuses)),
        stray=tuple(
            message_id for message_id in arrivals if message_id not in accepted and message_id not in shown_ids
        ),
        reply_missing=tuple(_reply_missing(shown, replies, echoing)),
        replied_twice=tuple(_replied_twice(replies)),
    )


def complete(statuses: Iterable[Status]) -> set[str]:
    """The messages of which all three statuses have come."""
    return {message_id for message_id, order in _first_arrivals(statuses).items() if set(STATUSES) <= set(order)}


def _first_arrivals(statuses: Iterable[Status]) -> dict[str, list[str]]:
    """Each message's statuses in the order in which each came first."""
    arrivals: dict[str, list[str]] = {}
    for status in statuses:
        order = arrivals.setdefault(status.message_id, [])
        if status.status not in order:
            order.append(status.status)
    return arrivals


def _is_forward(order: Sequence[str]) -> bool:
    ranks = [STATUSES.index(status) for status in order if status in STATUSES]
    # `failed` is final: nothing may come after it.
    return ranks == sorted(ranks) and "failed" not in order[:-1]


def _unexpected(shown: Sequence[Shown], accepted: dict[str, Request], by_digest: dict[str, Request]) -> Iterable[str]:
    for line in shown:
        request = by_digest.get(line.digest)
        if line.message_id in accepted:
            continue
        if request is None or not (request.accepted or request.in_doubt or request.status is None):
            yield line.message_id


def _shown_twice(shown: Sequence[Shown]) -> list[str]:
    ids = collections.Counter(line.message_id for line in shown)
    texts: dict[str, set[str]] = {}
    for line in shown:
        texts.setdefault(line.digest, set()).add(line.message_id)
    again = [message_id for message_id, count in ids.items() if count > 1]
    return again + [message_id for same in texts.values() if len(same) > 1 for message_id in sorted(same)[1:]]


def _corrupt(shown: Sequence[Shown], accepted: dict[str, Request], by_digest: dict[str, Request]) -> Iterable[str]:
    for line in shown:
        request = accepted.get(line.message_id) or by_digest.get(line.digest)
        if request is not None and (request.digest != line.digest or request.number != line.number):
            yield line.message_id


def _reply_missing(shown: Sequence[Shown], replies: Sequence[Reply], echoing: str) -> Iterable[str]:
    came = {(reply.number, reply.digest) for reply in replies}
    for line in shown:
        if echoing and line.number.startswith(echoing) and (line.number, line.digest) not in came:
            yield line.message_id


def _replied_twice(replies: Sequence[Reply]) -> Iterable[str]:
    ids: dict[tuple[str, str], str] = {}
    for reply in replies:
        if ids.setdefault((reply.number, reply.digest), reply.message_id) != reply.message_id:
            yield reply.message_id


def _renamed(statuses: Sequence[Status]) -> Iterable[str]:
    names: dict[tuple[str, str], str] = {}
    for status in statuses:
        if names.setdefault((status.message_id, status.status), status.event_id) != status.event_id:
            yield status.message_id
