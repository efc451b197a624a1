"""Review of the templates that clients create and edit, and the limit on edits of approved ones."""

from __future__ import annotations

import dataclasses
import math

from tidings.storage.business.templates import APPROVED, PAUSED, PENDING, REJECTED, TemplateRow

DAY_MS = 24 * 3600 * 1000
MAX_EDITS, EDITS_DAYS = 10, 30  # edits of an approved template in this number of days
EDITABLE = (APPROVED, REJECTED, PAUSED)  # statuses


class EditRefused(Exception):
    """The template cannot be edited now. The text names the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateReview:
    """Review that templates pass through before they are approved."""

    # Milliseconds from the submission to the approval, infinite for an approval by the operator only; None: there is no
    # review.
    delay_ms: float | None = None

    @property
    def is_required(self) -> bool:
        return self.delay_ms is not None

    def submit(self, template: TemplateRow, now: int) -> TemplateRow:
        """Return a new or edited template as it is to be stored: pending, if a review is required.

        now: time of the database's clock, Unix milliseconds
        """
        if self.delay_ms is None:
            return template
        review_at = None if self.delay_ms == math.inf else now + int(self.delay_ms)
        return dataclasses.replace(template, status=PENDING, review_at=review_at, rejected_reason=None)

    def edit(self, template: TemplateRow, wanted: TemplateRow, now: int) -> TemplateRow:
        """Return a template with the components and the category of another one. Raises `EditRefused`.

        Without a review the status stays, and the number of edits is not limited.

        now: time of the database's clock, Unix milliseconds
        """
        if template.status not in EDITABLE:
            raise EditRefused(f"a template with the status {template.status} cannot be edited")
        if wanted.category != template.category and template.status == APPROVED:
            raise EditRefused("category: that of an approved template cannot be changed")
        edits = template.edits
        if self.is_required and template.status == APPROVED:
            edits = [at for at in edits if at > now - EDITS_DAYS * DAY_MS]
            if edits and edits[-1] > now - DAY_MS:
                raise EditRefused("an approved template can be edited once in 24 hours")
            if len(edits) >= MAX_EDITS:
                raise EditRefused(f"an approved template can be edited {MAX_EDITS} times in {EDITS_DAYS} days")
            edits = [*edits, now]
        return self.submit(dataclasses.replace(redefine(template, wanted), edits=edits), now)


def redefine(template: TemplateRow, wanted: TemplateRow) -> TemplateRow:
    """Return a template with the definition of another one. Its status, quality and edits stay."""
    is_moved = wanted.category != template.category
    return dataclasses.replace(
        template,
        category=wanted.category,
        previous_category=template.category if is_moved else template.previous_category,
        next_category=None if is_moved else template.next_category,
        category_at=None if is_moved else template.category_at,
        parameter_format=wanted.parameter_format,
        components=wanted.components,
    )
