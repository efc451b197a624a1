"""Request bodies and responses of `/v1/contacts`."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from webapp.http.bodies import Body
from webapp.http.constraints import nullable
from webapp.http.openapi.document import Meta

MAX_CONTACTS = 5_000
MAX_INPUT = 128

Input = Annotated[str, pydantic.Field(max_length=MAX_INPUT, examples=["+1 555 011 0001"])]


class Contacts(Body):
    """Numbers to check.

    `force_check` skips cached results. With `no_wait` the response comes at once, and numbers that are still
    being checked are reported to the webhook later.
    """

    contacts: Annotated[
        list[Input],
        pydantic.FailFast(),
        pydantic.Field(min_length=1, max_length=MAX_CONTACTS, examples=[["+1 555 011 0001"]]),
    ]
    blocking: Annotated[Literal["wait", "no_wait"], pydantic.Field(json_schema_extra=nullable)] = "no_wait"
    force_check: Annotated[bool, pydantic.Field(json_schema_extra=nullable)] = False

    @pydantic.field_validator("blocking", "force_check", mode="before")
    @classmethod
    def _null_is_absent(cls, value: object, info: pydantic.ValidationInfo) -> object:
        if value is None and info.field_name is not None:
            return cls.model_fields[info.field_name].default
        return value


class Contact(pydantic.BaseModel):
    """Result for one number.

    `input` is the number as it was sent. `wa_id` has digits only and is absent unless the number is valid.
    """

    input: str = pydantic.Field(examples=["+1 555 011 0001"])
    status: Literal["valid", "invalid", "processing", "failed"]
    wa_id: str | None = pydantic.Field(default=None, examples=["15550110001"])


class Acknowledgement(Body):
    """The identity to acknowledge, named by its hash."""

    hash: Annotated[str, pydantic.Field(min_length=1, max_length=64, examples=["Sjvjlx8G6Z0="])]


class Identity(pydantic.BaseModel):
    """Identity of a contact: a hash of its keys, and the time since which they are known, in Unix milliseconds."""

    hash: str = pydantic.Field(examples=["Sjvjlx8G6Z0="])
    created_timestamp: int = pydantic.Field(examples=[1602532300000])
    acknowledged: bool


class IdentityResponse(pydantic.BaseModel):
    """Response with an identity. `contacts` is an object here, although other responses have lists."""

    contacts: Identity
    meta: Meta


class ContactsResponse(pydantic.BaseModel):
    """Response with one entry per input, in the order of the inputs."""

    contacts: list[Contact]
    meta: Meta
