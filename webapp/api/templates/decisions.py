"""Decisions about a template that the vendor's reviewers and users make at WhatsApp: here the operator makes them.

Each function returns the changed template, or the same one if it is so already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tidings.storage.business.template_events import PAUSE_TITLES
from tidings.storage.business.templates import (
    APPROVED,
    DISABLED,
    PAUSED,
    PENDING,
    REJECTED,
    UNRATED,
    TemplateRow,
    recategorised,
)

REASONS = ("ABUSIVE_CONTENT", "INVALID_FORMAT", "PROMOTIONAL", "SCAM", "TAG_CONTENT_MISMATCH")
PAUSES = (*PAUSE_TITLES, "RATE_LIMITING_PAUSE")
_PAUSE_HOURS = (3, 6)  # hours of the pauses in `PAUSE_TITLES`; another pause does not end by itself
_HOUR_MS = 3600 * 1000
QUALITIES = ("GREEN", "YELLOW", "RED", UNRATED)
_IN_APPEAL = "IN_APPEAL"
# Statuses from which each status can be reached.
_BEFORE: Mapping[str, Sequence[str]] = {
    APPROVED: (PENDING, _IN_APPEAL, REJECTED, PAUSED, DISABLED),
    REJECTED: (PENDING, _IN_APPEAL, APPROVED),
    PAUSED: (APPROVED,),
    DISABLED: (APPROVED, PAUSED),
}


class ImpossibleDecision(Exception):
    """The template's status does not allow the change. The text names both."""


def approve(template: TemplateRow) -> TemplateRow:
    """Approve a template. A paused or disabled one can be sent again. Raises `ImpossibleDecision`."""
    return _move(template, APPROVED)


def reject(template: TemplateRow, reason: str | None) -> TemplateRow:
    """Reject a template. Raises `ImpossibleDecision`.

    reason: one of `REASONS`; None for none
    """
    return _move(template, REJECTED, reason)


def pause(template: TemplateRow, now: int, *, title: str | None = None, duration_ms: int | None = None) -> TemplateRow:
    """Pause an approved template for some hours. Raises `ImpossibleDecision`.

    now: time of the database's clock, Unix milliseconds
    title: one of `PAUSES`; None for the next one, which is the end of a template that was paused twice: it is disabled
    duration_ms: time after which it is approved again; None for that of the title
    """
    if title is None and template.status == APPROVED and template.pauses >= len(PAUSE_TITLES):
        return disable(template)
    paused = _move(template, PAUSED)
    if paused is template:
        return template
    number = template.pauses if title is None else PAUSES.index(title)
    counts = number < len(PAUSE_TITLES)
    if duration_ms is None and counts:
        duration_ms = _PAUSE_HOURS[number] * _HOUR_MS
    return dataclasses.replace(
        paused,
        pauses=number + 1 if counts else template.pauses,
        review_at=None if duration_ms is None else now + duration_ms,
    )


def disable(template: TemplateRow) -> TemplateRow:
    """Disable a template. Raises `ImpossibleDecision`."""
    return _move(template, DISABLED)


def rate(template: TemplateRow, quality: str, now: int) -> TemplateRow:
    """Set the quality of a template.

    quality: one of `QUALITIES`
    now: time of the database's clock, Unix milliseconds
    """
    if quality == (template.quality or UNRATED):
        return template
    return dataclasses.replace(template, quality=quality, quality_at=now)


def recategorise(template: TemplateRow, category: str, at: int | None = None) -> TemplateRow:
    """Move a template to another category, which ends an announced move.

    at: time of the database's clock at which it is to be moved, Unix milliseconds; None for now
    """
    if category == template.category and template.next_category is None:
        return template
    if at is None or category == template.category:
        return recategorised(template, category)
    return dataclasses.replace(template, next_category=category, category_at=at)


def _move(template: TemplateRow, status: str, reason: str | None = None) -> TemplateRow:
    if template.status == status:
        return template
    if template.status not in _BEFORE[status]:
        raise ImpossibleDecision(
            f"{template.name} in {template.language} is {template.status}: only templates that are "
            f"{', '.join(_BEFORE[status])} can become {status}"
        )
    return dataclasses.replace(template, status=status, review_at=None, rejected_reason=reason)
