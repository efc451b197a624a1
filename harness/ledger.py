"""Reconciles the messages sent, shown by recipients and received by the webhook; pure functions.

A message is identified by the SHA-256 of its text, so every text of a run must be different. That also accounts for a
message whose request got no response and whose id the sender therefore does not know.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

STATUSES = ("sent", "delivered", "read")


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One `POST /v1/messages` as its sender saw it."""

    number: str
    digest: str
    # HTTP status; `None` when no complete response came.
    status: int | None
    # From the response; empty without one.
    message_id: str = ""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def in_doubt(self) -> bool:
        """Return whether the message may have been accepted: a server error, except 503, which is a refusal."""
        return self.status is not None and self.status >= 500 and self.status != 503


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """One line of a robot's log."""

    number: str
    message_id: str
    # Deliveries by the network so far.
    attempt: int
    digest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """One status that the webhook received; lists are in the order of arrival."""

    event_id: str
    message_id: str
    status: str
    # Details of the first error of a status `failed`.
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """One inbound message that the webhook received."""

    number: str
    # Digest of its text.
    digest: str
    message_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a reconciliation.

    requests = accepted + unanswered + in_doubt + refused. Neither those nor `unconfirmed` and `repeats` are faults; all
    fields after `repeats` are faults.
    """

    requests: int
    accepted: int
    unanswered: int
    in_doubt: int
    refused: int
    shown: int
    # Failed for the reason that allows them to have been shown or not.
    unconfirmed: int
    # Callbacks that came again under the same event id, as a receiver must expect.
    repeats: int
    # Accepted and never shown.
    lost: tuple[str, ...]
    # Shown, though no request for it was accepted, unanswered or in doubt.
    unexpected: tuple[str, ...]
    # Shown again, under the same id or another.
    shown_twice: tuple[str, ...]
    # Accepted or shown, and one of sent, delivered, read never came.
    status_missing: tuple[str, ...]
    # The first arrivals of its statuses were out of order.
    backwards: tuple[str, ...]
    # Shown with another text than was sent under its id, or to another number.
    corrupt: tuple[str, ...]
    # Got the status failed, and is not unconfirmed.
    failed: tuple[str, ...]
    # The same status came under two event ids.
    renamed: tuple[str, ...]
    # Got statuses, but was neither accepted nor shown.
    stray: tuple[str, ...]
    # Shown to a recipient that echoes, and the echo never came.
    reply_missing: tuple[str, ...]
    # Its echo came under two message ids.
    replied_twice: tuple[str, ...]

    def faults(self) -> dict[str, tuple[str, ...]]:
        """Return the kinds of fault that were found, each with the messages concerned."""
        return {name: found for name in FAULTS if (found := getattr(self, name))}

    def describe(self, examples: int = 3) -> str:
        """Return one line per kind of fault, for people; empty without faults."""
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
    """Return the identifier of a text in the robots' log."""
    return hashlib.sha256(text.encode()).hexdigest()


def reconcile(
    requests: Sequence[Request],
    shown: Sequence[Shown],
    statuses: Sequence[Status],
    replies: Sequence[Reply] = (),
    *,
    echoing: str = "",
    unconfirmed: str = "",
) -> Verdict:
    """Reconcile the records of a run. Raises `ValueError` when two requests had the same text.

    echoing: prefix of the numbers whose recipients send each text back; empty for none.
    unconfirmed: start of the reason of failed messages that may have been shown or not; empty for none.
    """
    by_digest = {request.digest: request for request in requests}
    if len(by_digest) != len(requests):
        raise ValueError("two requests of the run have the same text")
    accepted = {request.message_id: request for request in requests if request.accepted}
    shown_digests = {line.digest for line in shown}
    shown_ids = {line.message_id for line in shown}
    must_report = list(dict.fromkeys([*accepted, *(line.message_id for line in shown)]))
    arrivals = _first_arrivals(statuses)
    open_ids = unconfirmed_ids(statuses, unconfirmed)
    # Ids of messages whose request got no response are unknown.
    unknown = sum(
        (request.status is None or request.in_doubt) and request.digest not in shown_digests for request in requests
    )
    stray = [message_id for message_id in arrivals if message_id not in accepted and message_id not in shown_ids]
    return Verdict(
        requests=len(requests),
        accepted=sum(request.accepted for request in requests),
        unanswered=sum(request.status is None for request in requests),
        in_doubt=sum(request.in_doubt for request in requests),
        refused=sum(not (r.accepted or r.in_doubt or r.status is None) for r in requests),
        shown=len(shown_ids),
        unconfirmed=len(open_ids),
        repeats=len(statuses) - len({status.event_id for status in statuses}),
        lost=tuple(
            message_id
            for message_id, request in accepted.items()
            if message_id not in shown_ids and request.digest not in shown_digests and message_id not in open_ids
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
        failed=tuple(
            message_id for message_id, order in arrivals.items() if "failed" in order and message_id not in open_ids
        ),
        renamed=tuple(_renamed(statuses)),
        stray=(
            *(message_id for message_id in stray if message_id not in open_ids),
            *[message_id for message_id in stray if message_id in open_ids][unknown:],
        ),
        reply_missing=tuple(_reply_missing(shown, replies, echoing)),
        replied_twice=tuple(_replied_twice(replies)),
    )


def complete(statuses: Iterable[Status]) -> set[str]:
    """Return the messages for which all three statuses have arrived."""
    return {message_id for message_id, order in _first_arrivals(statuses).items() if set(STATUSES) <= set(order)}


def unconfirmed_ids(statuses: Iterable[Status], reason: str) -> set[str]:
    """Return the messages that failed for a reason that starts so; none for an empty one."""
    return {one.message_id for one in statuses if reason and one.status == "failed" and one.reason.startswith(reason)}


def _first_arrivals(statuses: Iterable[Status]) -> dict[str, list[str]]:
    """Return each message's statuses in the order of their first arrivals."""
    arrivals: dict[str, list[str]] = {}
    for status in statuses:
        order = arrivals.setdefault(status.message_id, [])
        if status.status not in order:
            order.append(status.status)
    return arrivals


def _is_forward(order: Sequence[str]) -> bool:
    ranks = [STATUSES.index(status) for status in order if status in STATUSES]
    # `failed` is final: nothing may follow it.
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
