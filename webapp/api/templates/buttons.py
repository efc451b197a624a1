"""Definitions of a template's buttons."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.templates import placeholders
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import MAX_URL, WEB_ADDRESS, Length, Matches, needs, number_as_text

MAX_BUTTONS, MAX_CARD_BUTTONS = 10, 2
MAX_CODE = 15  # characters of the code to copy

OTP, FLOW, COPY_CODE = "OTP", "FLOW", "COPY_CODE"
OTP_COPY, ONE_TAP, ZERO_TAP = "COPY_CODE", "ONE_TAP", "ZERO_TAP"  # types of one-time-password buttons
COPY_TEXT, AUTOFILL_TEXT = "Copy code", "Autofill"

_NEEDED = {
    "QUICK_REPLY": ("text",),
    "URL": ("text", "url"),
    "PHONE_NUMBER": ("text", "phone_number"),
    COPY_CODE: (),
    "CATALOG": ("text",),
    FLOW: ("text",),
    OTP: ("otp_type",),
}


def in_upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


UPPER = pydantic.BeforeValidator(in_upper_case)
ButtonText = Annotated[str, Length(25), pydantic.AfterValidator(placeholders.has_no_placeholder)]
PackageName = Annotated[
    str,
    Length(224),
    Matches(r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$", "should be the name of a package: com.example.app"),
]
SignatureHash = Annotated[
    str, Matches(r"^[A-Za-z0-9+/=]{11}$", "should be the 11 characters of an app's signature hash")
]
PhoneNumber = Annotated[str, Matches(r"^\+?[0-9]{5,20}$", "should be 5 to 20 digits, with or without + before them")]
FlowId = Annotated[
    str,
    pydantic.BeforeValidator(number_as_text),
    Length(64),
    pydantic.WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 64}, {"type": "integer", "minimum": 0}]}
    ),
]


class App(Body):
    """App that receives a one-time password."""

    package_name: PackageName
    signature_hash: SignatureHash


class Button(Body):
    """A button. `url` may end with one placeholder. Each message brings the code to copy or to pass to an app."""

    model_config = pydantic.ConfigDict(json_schema_extra=needs("type", {kind: list(_NEEDED[kind]) for kind in _NEEDED}))

    type: Annotated[
        Literal["QUICK_REPLY", "URL", "PHONE_NUMBER", "COPY_CODE", "CATALOG", "FLOW", "OTP"],
        UPPER,
    ]
    text: ButtonText | None = None
    url: (
        Annotated[
            str,
            Length(MAX_URL),
            Matches(f"^{WEB_ADDRESS}$", "should begin with http:// or https:// and have no blanks"),
            pydantic.AfterValidator(placeholders.ends_with_its_placeholder),
        ]
        | None
    ) = None
    phone_number: PhoneNumber | None = None
    flow_id: FlowId | None = None
    flow_name: Annotated[str, Length(200)] | None = None
    flow_action: Annotated[Literal["NAVIGATE", "DATA_EXCHANGE"], UPPER] | None = None
    navigate_screen: Annotated[str, Length(255)] | None = None
    otp_type: Annotated[Literal["COPY_CODE", "ONE_TAP", "ZERO_TAP"], UPPER] | None = None
    autofill_text: ButtonText | None = None
    zero_tap_terms_accepted: bool | None = None
    package_name: PackageName | None = None
    signature_hash: SignatureHash | None = None
    supported_apps: Annotated[list[App], pydantic.Field(min_length=1, max_length=5)] | None = None
    example: Any = None

    @pydantic.model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Button:
        for name in _NEEDED[self.type]:
            if getattr(self, name) is None:
                raise _missing(name, f"type {self.type}")
        if self.type == FLOW and self.flow_id is None and self.flow_name is None:
            raise _missing("flow_id or flow_name", f"type {FLOW}")
        if self.type == OTP and self.otp_type != OTP_COPY:
            if self.supported_apps is None and (self.package_name is None or self.signature_hash is None):
                raise _missing("supported_apps", f"otp_type {self.otp_type}")
            if self.otp_type == ZERO_TAP and self.zero_tap_terms_accepted is not True:
                raise refusal(PARAMETER_INVALID, "zero_tap_terms_accepted should be true for otp_type ZERO_TAP")
        return self


def _missing(name: str, of: str) -> Exception:
    return refusal(PARAMETER_MISSING, "{name} is missing, which {of} needs", name=name, of=of)


class ButtonsComponent(Body):
    type: Annotated[Literal["BUTTONS"], UPPER]
    buttons: Annotated[list[Button], pydantic.Field(min_length=1, max_length=MAX_BUTTONS)]


def apps(button: dict[str, Any]) -> list[dict[str, str]]:
    """Return the apps that a stored one-time-password button passes its code to."""
    if button.get("supported_apps"):
        return list(button["supported_apps"])
    if "package_name" in button and "signature_hash" in button:
        return [{"package_name": button["package_name"], "signature_hash": button["signature_hash"]}]
    return []
