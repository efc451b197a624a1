"""Ledger of a run: it balances when nothing went wrong, and every kind of fault is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from harness import ledger
from harness.ledger import Reply, Request, Shown, Status

# Recipients whose numbers start with this echo each text: here the one of m2.
ECHOING = "15550110002"


@dataclasses.dataclass
class Records:
    requests: list[Request]
    shown: list[Shown]
    statuses: list[Status]
    replies: list[Reply]

    def reconcile(self) -> ledger.Verdict:
        return ledger.reconcile(self.requests, self.shown, self.statuses, self.replies, echoing=ECHOING)


def three(message_id: str) -> list[Status]:
    return [Status(f"event-{message_id}-{status}", message_id, status) for status in ledger.STATUSES]


def balanced() -> Records:
    """Return a ledger that balances.

    It has four accepted messages (m0..m3), one unanswered that was accepted (m4), one that was not, and one refused.
    The recipient of m2 echoes.
    """
    texts = [ledger.digest(f"text {n}") for n in range(7)]
    numbers = [f"1555011000{n}" for n in range(7)]
    requests = [Request(numbers[n], texts[n], 201, f"m{n}") for n in range(4)]
    requests += [Request(numbers[n], texts[n], None) for n in (4, 5)]
    requests.append(Request(numbers[6], texts[6], 503))
    shown = [Shown(numbers[n], f"m{n}", 1, texts[n]) for n in range(5)]
    statuses = [status for n in range(5) for status in three(f"m{n}")]
    return Records(requests, shown, statuses, [Reply(numbers[2], texts[2], "r2")])


def test_the_ledger_of_a_faultless_run_balances() -> None:
    verdict = balanced().reconcile()
    assert verdict.faults() == {}
    assert verdict.describe() == ""
    counts = (verdict.requests, verdict.accepted, verdict.unanswered, verdict.in_doubt, verdict.refused, verdict.shown)
    assert counts == (7, 4, 2, 0, 1, 5)
    assert verdict.repeats == 0


def lose_message(records: Records) -> None:
    records.shown = [line for line in records.shown if line.message_id != "m1"]


def show_what_was_refused(records: Records) -> None:
    records.shown.append(Shown(records.requests[6].number, "m6", 1, records.requests[6].digest))
    records.statuses += three("m6")


def show_what_nobody_sent(records: Records) -> None:
    records.shown.append(Shown("15550110009", "m9", 1, ledger.digest("never sent")))
    records.statuses += three("m9")


def show_again(records: Records) -> None:
    records.shown.append(dataclasses.replace(records.shown[2], attempt=2))


def show_again_under_another_id(records: Records) -> None:
    records.shown.append(dataclasses.replace(records.shown[4], message_id="m8"))
    records.statuses += three("m8")


def forget_a_status(records: Records) -> None:
    records.statuses = [s for s in records.statuses if (s.message_id, s.status) != ("m0", "delivered")]


def remove_a_status_of_a_request_without_response(records: Records) -> None:
    records.statuses = [s for s in records.statuses if (s.message_id, s.status) != ("m4", "read")]


def go_backwards(records: Records) -> None:
    records.statuses[0], records.statuses[2] = records.statuses[2], records.statuses[0]


def fail_after_read(records: Records) -> None:
    records.statuses.insert(0, Status("event-m0-failed", "m0", "failed"))


def change_a_text(records: Records) -> None:
    records.shown[3] = dataclasses.replace(records.shown[3], digest=ledger.digest("something else"))


def show_to_another(records: Records) -> None:
    records.shown[3] = dataclasses.replace(records.shown[3], number="15550110008")


def rename_an_event(records: Records) -> None:
    records.statuses.append(Status("another-event", "m2", "read"))


def report_what_nobody_knows(records: Records) -> None:
    records.statuses += three("m77")


def forget_a_reply(records: Records) -> None:
    records.replies.clear()


def reply_twice(records: Records) -> None:
    records.replies.append(dataclasses.replace(records.replies[0], message_id="r22"))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose_message, {"lost": ("m1",)}),
        (show_what_was_refused, {"unexpected": ("m6",)}),
        (show_what_nobody_sent, {"unexpected": ("m9",)}),
        (show_again, {"shown_twice": ("m2",)}),
        (show_again_under_another_id, {"shown_twice": ("m8",)}),
        (forget_a_status, {"status_missing": ("m0",)}),
        (remove_a_status_of_a_request_without_response, {"status_missing": ("m4",)}),
        (go_backwards, {"backwards": ("m0",)}),
        (fail_after_read, {"backwards": ("m0",), "failed": ("m0",)}),
        (change_a_text, {"corrupt": ("m3",)}),
        (show_to_another, {"corrupt": ("m3",)}),
        (rename_an_event, {"renamed": ("m2",)}),
        (report_what_nobody_knows, {"stray": ("m77",)}),
        (forget_a_reply, {"reply_missing": ("m2",)}),
        (reply_twice, {"replied_twice": ("r22",)}),
    ],
)
def test_an_injected_fault_is_found(plant: Callable[[Records], None], found: dict[str, tuple[str, ...]]) -> None:
    records = balanced()
    plant(records)
    verdict = records.reconcile()
    assert verdict.faults() == found
    assert all(message_id in verdict.describe() for ids in found.values() for message_id in ids)


def test_a_repeated_callback_is_counted_but_is_no_fault() -> None:
    records = balanced()
    records.statuses += [records.statuses[1], records.statuses[1], records.statuses[5]]
    verdict = records.reconcile()
    assert verdict.repeats == 3
    assert verdict.faults() == {}


def test_a_request_with_unknown_outcome_is_neither_lost_nor_unexpected() -> None:
    records = balanced()
    records.requests[4] = dataclasses.replace(records.requests[4], status=500)
    records.requests[5] = dataclasses.replace(records.requests[5], status=500)
    verdict = records.reconcile()
    assert (verdict.unanswered, verdict.in_doubt) == (0, 2)
    assert verdict.faults() == {}


MAYBE = "may have been sent"


def unconfirm(records: Records, message_id: str) -> ledger.Verdict:
    """Reconcile with a status `failed` of this message, whose outcome is unknown, instead of its others."""
    records.statuses = [status for status in records.statuses if status.message_id != message_id]
    records.statuses.append(Status(f"event-{message_id}-failed", message_id, "failed", f"{MAYBE}: no response"))
    return ledger.reconcile(
        records.requests, records.shown, records.statuses, records.replies, echoing=ECHOING, unconfirmed=MAYBE
    )


@pytest.mark.parametrize("message_id", ["m1", "m4"])
def test_an_unconfirmed_message_may_have_been_shown_or_not(message_id: str) -> None:
    records = balanced()
    verdict = unconfirm(records, message_id)
    assert (verdict.unconfirmed, verdict.faults()) == (1, {})
    records.shown = [line for line in records.shown if line.message_id != message_id]
    verdict = unconfirm(records, message_id)
    assert (verdict.unconfirmed, verdict.faults()) == (1, {})


def test_an_unconfirmed_message_may_not_be_shown_twice() -> None:
    records = balanced()
    records.shown.append(dataclasses.replace(records.shown[1], attempt=2))
    assert unconfirm(records, "m1").faults() == {"shown_twice": ("m1",)}


def test_a_message_that_failed_for_another_reason_is_a_fault() -> None:
    records = balanced()
    records.statuses = [*records.statuses[3:], Status("event-m0-failed", "m0", "failed", "no such number")]
    verdict = ledger.reconcile(records.requests, records.shown, records.statuses, records.replies, unconfirmed=MAYBE)
    assert (verdict.unconfirmed, verdict.faults()) == (0, {"failed": ("m0",)})


def test_more_unconfirmed_messages_than_unanswered_requests_are_stray() -> None:
    records = balanced()
    # m5 got no response; m6 was refused.
    unconfirm(records, "m5")
    assert unconfirm(records, "m6").faults() == {"stray": ("m6",)}


def test_equal_texts_are_refused() -> None:
    records = balanced()
    records.requests[1] = records.requests[0]
    with pytest.raises(ValueError, match="same text"):
        records.reconcile()


def test_only_messages_with_all_three_statuses_are_complete() -> None:
    records = balanced()
    forget_a_status(records)
    assert ledger.complete(records.statuses) == {"m1", "m2", "m3", "m4"}
