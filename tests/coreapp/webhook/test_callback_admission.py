"""The number of callbacks that counts at the admission of a message."""

from __future__ import annotations

import dataclasses

from coreapp.capacity import CapacityGate
from coreapp.webhook.queue import CallbackAdmission


@dataclasses.dataclass
class Waiting:
    ours: int
    from_recipients: int

    def __len__(self) -> int:
        return self.ours + self.from_recipients


class Target:
    def is_set(self) -> bool:
        return True


def test_callbacks_from_recipients_fill_at_most_a_quarter_of_the_limit() -> None:
    waiting = Waiting(0, 0)
    admission = CallbackAdmission(Target(), waiting, limit=100, refuses=False)
    gate = CapacityGate("callback", 100)
    assert gate.is_open(admission.count())
    waiting.from_recipients = 1_000_000
    assert gate.is_open(admission.count())
    waiting.ours = 74
    assert gate.is_open(admission.count())
    waiting.ours = 75
    assert not gate.is_open(admission.count())
    # Admission opens again at half, however many of the recipients' callbacks are left.
    waiting.ours = 26
    assert not gate.is_open(admission.count())
    waiting.ours = 25
    assert gate.is_open(admission.count())
