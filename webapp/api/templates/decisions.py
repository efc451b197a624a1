"""Decisions about a template that the vendor's reviewers and users make at WhatsApp: here the operator makes them.

Each function returns the changed template, or the same one if it is so already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tidings.storage.business.templates import APPROVED, DISABLED, PAUSED, PENDING, REJECTED, UNRATED, TemplateRow

REASONS = ("ABUSIVE_CONTENT", "INVALID_FORMAT", "PROMOTIONAL", "SCAM", "TAG_CONTENT_MISMATCH")
PAUSES = ("FIRST_PAUSE", "SECOND_PAUSE", "RATE_LIMITING_PAUSE")
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


def pause(template: TemplateRow) -> TemplateRow:
    """Pause an approved template until it is approved again. Raises `ImpossibleDecision`."""
    return _move(template, PAUSED)


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


def recategorise(template: TemplateRow, category: str) -> TemplateRow:
    """Move a template to another category."""
    if category == template.category:
        return template
    return dataclasses.replace(template, category=category, previous_category=template.category)


def _move(template: TemplateRow, status: str, reason: str | None = None) -> TemplateRow:
    if template.status == status:
        return template
    if template.status not in _BEFORE[status]:
        raise ImpossibleDecision(
            f"{template.name} in {template.language} is {template.status}: only templates that are "
            f"{', '.join(_BEFORE[status])} can become {status}"
        )
    return dataclasses.replace(template, status=status, review_at=None, rejected_reason=reason)
