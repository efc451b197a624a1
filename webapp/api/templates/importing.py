"""Import of templates from an export of the Graph API, with a reason for each template that is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import pydantic

from tidings.storage.business.templates import Key, TemplateRow
from tidings.wire.codes import ALREADY_EXISTS, PARAMETER_INVALID
from webapp.api.templates.review import redefine
from webapp.api.templates.schemas import Definition, Namespace
from webapp.http import bodies
from webapp.http.bodies import Body
from webapp.http.errors import InvalidRequest, Problem

MAX_TEMPLATES = 1000

# Categories from before today's three.
_CATEGORIES = {"TRANSACTIONAL": "UTILITY", "OTP": "AUTHENTICATION", "AUTO_REPLY": "UTILITY"} | dict.fromkeys(
    (
        "ACCOUNT_UPDATE",
        "PAYMENT_UPDATE",
        "PERSONAL_FINANCE_UPDATE",
        "SHIPPING_UPDATE",
        "RESERVATION_UPDATE",
        "ISSUE_RESOLUTION",
        "APPOINTMENT_UPDATE",
        "TRANSPORTATION_UPDATE",
        "TICKET_UPDATE",
        "ALERT_UPDATE",
    ),
    "UTILITY",
)
# Names of a status at 360dialog that differ from the Graph API's.
_STATUSES = {"SUBMITTED": "PENDING", "CREATED": "PENDING"}
# A button with a one-time password is exported as a link to this page.
_CODE_HOST, _CODE_PATH = "www.whatsapp.com", "/otp/code/"


class Import(Body):
    """An export of templates. Either all of them are stored or none."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "data": [
                        {
                            "name": "greeting",
                            "language": "en_US",
                            "status": "APPROVED",
                            "category": "MARKETING",
                            "components": [{"type": "BODY", "text": "Hello", "example": {"body_text": [["x"]]}}],
                        }
                    ]
                }
            ]
        }
    )

    data: Annotated[list[Any], pydantic.Field(max_length=MAX_TEMPLATES)]
    namespace: Namespace | None = None
    replace: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class EntryRefused:
    """Entry of an export that cannot be stored."""

    place: int  # index in the export, from 0
    name: str
    problem: Problem

    def __str__(self) -> str:
        return f"data[{self.place}] ({self.name}): {self.problem.details}"


@dataclasses.dataclass(frozen=True, slots=True)
class ImportPlan:
    """Changes that an import makes."""

    keep: Sequence[TemplateRow]  # new or changed templates
    unchanged: Sequence[TemplateRow]  # stored templates that the export does not change
    refused: Sequence[EntryRefused]

    def require_all(self) -> None:
        """Raise `InvalidRequest` that names each refused entry."""
        if self.refused:
            raise InvalidRequest([Problem(entry.problem.code, str(entry)) for entry in self.refused])


def plan(
    wanted: Import,
    account: str,
    existing: Sequence[TemplateRow],
    now: int,
    *,
    submit: Callable[[TemplateRow], TemplateRow] | None = None,
) -> ImportPlan:
    """Return the changes that an import makes.

    existing: all templates of the account
    now: Unix milliseconds
    submit: returns a template without a `status` as it enters the review; None if there is no review
    """
    known = {template.key: template for template in existing}
    seen: set[Key] = set()
    keep: list[TemplateRow] = []
    unchanged: list[TemplateRow] = []
    refused: list[EntryRefused] = []
    for place, entry in enumerate(wanted.data):
        try:
            definition = bodies.check(Definition, _definition(entry, wanted.namespace))
        except InvalidRequest as error:
            details = "; ".join(problem.details for problem in error.problems)
            refused.append(EntryRefused(place, _name_of(entry), Problem(error.problems[0].code, details)))
            continue
        row = definition.row(account, now)
        old, is_submitted = known.get(row.key), submit is not None and "status" not in definition.model_fields_set
        if old is not None:
            row = _replacing(old, row, status=old.status if is_submitted else row.status)
        if row.key in seen:
            problem = Problem(PARAMETER_INVALID, "is there twice")
            refused.append(EntryRefused(place, _name_of(entry), problem))
        elif old is not None and row == old:
            unchanged.append(old)
        elif old is not None and not wanted.replace:
            problem = Problem(ALREADY_EXISTS, "there is another template with this name in this language and namespace")
            refused.append(EntryRefused(place, _name_of(entry), problem))
        else:
            row = dataclasses.replace(row, created_at=now)
            keep.append(submit(row) if submit is not None and is_submitted else row)
        seen.add(row.key)
    return ImportPlan(keep, unchanged, refused)


def _replacing(old: TemplateRow, new: TemplateRow, *, status: str) -> TemplateRow:
    """Return a stored template with the definition of an imported one, and a status."""
    row = redefine(old, new)
    if status == old.status:
        return row
    return dataclasses.replace(row, status=status, review_at=None, rejected_reason=None)


def _name_of(entry: Any) -> str:
    if not isinstance(entry, Mapping):
        return "no template"
    return f"{str(entry.get('name'))[:100]} in {str(entry.get('language'))[:20]}"


def _definition(entry: Any, namespace: str | None) -> Any:
    """Convert an exported template to a definition. A value that is not an object stays as it is."""
    if not isinstance(entry, dict):
        return entry
    category = entry.get("category")
    changed: dict[str, Any] = (
        {"category": _CATEGORIES.get(str(category).upper(), category)} if category is not None else {}
    )
    status = _STATUSES.get(str(entry.get("status")).upper())
    if status is not None:
        changed["status"] = status
    if namespace is not None and entry.get("namespace") is None:
        changed["namespace"] = namespace
    parts = entry.get("components")
    if changed.get("category") == "AUTHENTICATION" and isinstance(parts, list):
        changed["components"] = [_with_codes(part) for part in parts]
    return {**entry, **changed}


def _with_codes(part: Any) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("buttons"), list):
        return part
    return {**part, "buttons": [_code_button(button) for button in part["buttons"]]}


def _code_button(button: Any) -> Any:
    """Convert a button that is exported as a link to the vendor's page for one-time passwords."""
    url = button.get("url") if isinstance(button, dict) else None
    if not isinstance(url, str):
        return button
    try:
        parts = urlsplit(url)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    except ValueError:
        return button
    if (parts.hostname, parts.path) != (_CODE_HOST, _CODE_PATH) or "otp_type" not in given:
        return button
    made = {"type": "OTP", "otp_type": given["otp_type"], "text": button.get("text")}
    for name, field in (
        ("cta_display_name", "autofill_text"),
        ("package_name", "package_name"),
        ("signature_hash", "signature_hash"),
    ):
        if name in given:
            made[field] = given[name]
    if made["otp_type"] == "ZERO_TAP":
        # The export contains such buttons only after the terms were accepted.
        made["zero_tap_terms_accepted"] = True
    return made
