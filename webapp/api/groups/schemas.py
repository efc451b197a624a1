"""Request bodies and responses of `/v1/groups`."""

from __future__ import annotations

import unicodedata
from typing import Annotated

import pydantic

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Matches
from webapp.http.openapi.document import Meta

MAX_SUBJECT = 100  # characters
MAX_WA_IDS = 256
MAX_ICON = 64 * 1024  # bytes


_PLAIN = "\\x00-\\x1f\\x7f-\\x9f"
# The schema describes the subject with this pattern. `_is_subject` checks it.
_SUBJECT = f"^[^{_PLAIN}]*[^\\s{_PLAIN}][^{_PLAIN}]*$"


def _is_subject(text: str) -> str:
    if not text.strip() or any(unicodedata.category(character) == "Cc" for character in text):
        raise refusal(PARAMETER_INVALID, "should have text and no control characters")
    return text


def _is_some(wa_ids: list[str]) -> list[str]:
    if not wa_ids:
        raise refusal(PARAMETER_MISSING, "has no participant")
    return list(dict.fromkeys(wa_id.removeprefix("+") for wa_id in wa_ids))


WaId = Annotated[
    str,
    Matches(r"^\+?[0-9]{5,20}$", "should be 5 to 20 digits, with or without + before them"),
    pydantic.Field(examples=["15550110001"]),
]


class Subject(Body):
    """Subject of the group."""

    subject: Annotated[
        str,
        pydantic.Field(
            min_length=1,
            max_length=MAX_SUBJECT,
            examples=["Tuesday deliveries"],
            json_schema_extra={"pattern": _SUBJECT},
        ),
        pydantic.AfterValidator(_is_subject),
    ]


class Participants(Body):
    """Participants of the group to change. All of them must be in the group."""

    wa_ids: Annotated[
        list[WaId],
        pydantic.Field(max_length=MAX_WA_IDS, json_schema_extra={"minItems": 1}),
        pydantic.AfterValidator(_is_some),
    ]


class Group(pydantic.BaseModel):
    """A group. `creation_time` is in Unix seconds."""

    id: str = pydantic.Field(examples=["15550001111-1700000000"])
    creation_time: int = pydantic.Field(examples=[1700000000])


class GroupsResponse(pydantic.BaseModel):
    """Response with the new group, or with all groups that the business is in, oldest first."""

    groups: list[Group]
    meta: Meta


class Description(pydantic.BaseModel):
    """Description of a group. `participants` includes the business and the admins."""

    admins: list[str] = pydantic.Field(examples=[["15550000000"]])
    creation_time: int = pydantic.Field(examples=[1700000000])
    creator: str = pydantic.Field(examples=["15550000000"])
    participants: list[str] = pydantic.Field(examples=[["15550000000", "15550110001"]])
    subject: str = pydantic.Field(examples=["Tuesday deliveries"])


class DescriptionResponse(pydantic.BaseModel):
    """Response with one group, in a list."""

    groups: list[Description]
    meta: Meta


class Link(pydantic.BaseModel):
    """A URL."""

    link: str = pydantic.Field(examples=["https://chat.example.com/AbCdEfGhIjK"])


class LinkResponse(pydantic.BaseModel):
    """Response with the invitation link, or with the icon's URL."""

    groups: list[Link]
    meta: Meta
