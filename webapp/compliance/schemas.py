"""Bodies and answers of the compliance endpoint."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pydantic
from pydantic.config import JsonDict

from tidings.wire.codes import PARAMETER_MISSING
from webapp.bodies import Body, refusal
from webapp.constraints import Matches, Maybe, either_or_both, needs
from webapp.openapi import Meta

MAX_TEXT = 128  # characters

EntityType = Literal[
    "LIMITED_LIABILITY_PARTNERSHIP", "SOLE_PROPRIETORSHIP", "PARTNERSHIP", "PUBLIC_COMPANY", "PRIVATE_COMPANY", "OTHER"
]
# Of these it is asked whether they are registered; the others are.
_UNCERTAIN = ("PARTNERSHIP", "OTHER")
_NEEDS: JsonDict = needs(
    "entity_type",
    {
        "LIMITED_LIABILITY_PARTNERSHIP": (),
        "SOLE_PROPRIETORSHIP": (),
        "PARTNERSHIP": ("is_registered",),
        "PUBLIC_COMPANY": (),
        "PRIVATE_COMPANY": (),
        "OTHER": ("entity_type_custom", "is_registered"),
    },
)

Text = Annotated[str, pydantic.Field(min_length=1, max_length=MAX_TEXT)]
Number = Annotated[
    str,
    pydantic.Field(max_length=32),
    Matches(r"^\+[0-9][0-9 ()-]{3,30}$", "should be a phone number with + and its country code"),
]


class ContactDetails(Body):
    """At least one of the ways to reach somebody."""

    model_config = pydantic.ConfigDict(json_schema_extra=either_or_both("email", "landline_number", "mobile_number"))

    email: Annotated[Maybe[Text], pydantic.Field(examples=["care@example.com"])] = None
    landline_number: Maybe[Number] = None
    mobile_number: Maybe[Number] = None

    @pydantic.model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if not (self.email or self.landline_number or self.mobile_number):
            raise refusal(PARAMETER_MISSING, "should have email, landline_number or mobile_number")
        return self


class OfficerDetails(ContactDetails):
    """Whom complaints go to."""

    name: Annotated[Text, pydantic.Field(examples=["Ada Lovelace"])]


class Compliance(Body):
    """Takes the place of what was there."""

    model_config = pydantic.ConfigDict(json_schema_extra=_NEEDS)

    entity_name: Annotated[Text, pydantic.Field(examples=["Tidings Ltd."])]
    entity_type: Annotated[EntityType, pydantic.Field(examples=["PRIVATE_COMPANY"])]
    entity_type_custom: Maybe[Text] = None
    is_registered: bool | None = None
    customer_care_details: ContactDetails
    grievance_officer_details: OfficerDetails

    @pydantic.model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.entity_type in _UNCERTAIN and self.is_registered is None:
            raise refusal(PARAMETER_MISSING, "is_registered is missing for this entity_type")
        if self.entity_type == "OTHER" and not self.entity_type_custom:
            raise refusal(PARAMETER_MISSING, "entity_type_custom is missing for this entity_type")
        return self


class Contact(pydantic.BaseModel):
    """Empty where nothing was set."""

    email: str = pydantic.Field(examples=["care@example.com"])
    landline_number: str = pydantic.Field(examples=["+913857614343"])
    mobile_number: str = pydantic.Field(examples=[""])


class Officer(Contact):
    """Empty where nothing was set."""

    name: str = pydantic.Field(examples=["Ada Lovelace"])


class ComplianceFields(pydantic.BaseModel):
    """Empty where nothing was set."""

    entity_name: str = pydantic.Field(examples=["Tidings Ltd."])
    entity_type: str = pydantic.Field(examples=["PRIVATE_COMPANY"])
    entity_type_custom: str = pydantic.Field(examples=[""])
    is_registered: bool = pydantic.Field(examples=[True])
    customer_care_details: Contact
    grievance_officer_details: Officer


class ComplianceSection(pydantic.BaseModel):
    """Nested as its path."""

    compliance_info: ComplianceFields


class ComplianceSettings(pydantic.BaseModel):
    """Nested as its path."""

    business: ComplianceSection


class ComplianceAnswer(pydantic.BaseModel):
    """What was set."""

    settings: ComplianceSettings
    meta: Meta
