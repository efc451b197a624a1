"""Request bodies and responses of the compliance endpoint."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pydantic
from pydantic.config import JsonDict

from tidings.wire.codes import PARAMETER_MISSING
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Matches, Maybe, either_or_both, needs
from webapp.http.openapi.document import Meta

MAX_TEXT = 128  # characters

EntityType = Literal[
    "LIMITED_LIABILITY_PARTNERSHIP", "SOLE_PROPRIETORSHIP", "PARTNERSHIP", "PUBLIC_COMPANY", "PRIVATE_COMPANY", "OTHER"
]
# Entity types that may be unregistered: `is_registered` is required for them. The others are always registered.
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
    """Ways to contact the business. At least one is required."""

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
    """Officer who receives complaints."""

    name: Annotated[Text, pydantic.Field(examples=["Ada Lovelace"])]


class Compliance(Body):
    """New compliance information. It replaces the previous one."""

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
    """Ways to contact the business. Values that were not set are empty."""

    email: str = pydantic.Field(examples=["care@example.com"])
    landline_number: str = pydantic.Field(examples=["+913857614343"])
    mobile_number: str = pydantic.Field(examples=[""])


class Officer(Contact):
    """Officer who receives complaints. Values that were not set are empty."""

    name: str = pydantic.Field(examples=["Ada Lovelace"])


class ComplianceFields(pydantic.BaseModel):
    """Compliance information. Values that were not set are empty."""

    entity_name: str = pydantic.Field(examples=["Tidings Ltd."])
    entity_type: str = pydantic.Field(examples=["PRIVATE_COMPANY"])
    entity_type_custom: str = pydantic.Field(examples=[""])
    is_registered: bool = pydantic.Field(examples=[True])
    customer_care_details: Contact
    grievance_officer_details: Officer


class ComplianceSection(pydantic.BaseModel):
    """Section of the response, nested like the path."""

    compliance_info: ComplianceFields


class ComplianceSettings(pydantic.BaseModel):
    """Section of the response, nested like the path."""

    business: ComplianceSection


class ComplianceResponse(pydantic.BaseModel):
    """Response with the compliance information."""

    settings: ComplianceSettings
    meta: Meta
