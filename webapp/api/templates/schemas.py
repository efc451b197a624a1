"""Request bodies and responses of `/v1/configs/templates`, with the definition of a template."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from tidings.storage.business import templates
from webapp.api.templates import components
from webapp.api.templates.buttons import COPY_TEXT, OTP, UPPER
from webapp.http.bodies import Body
from webapp.http.constraints import Matches
from webapp.http.openapi.document import Meta

# Standard texts of a template with a one-time password, used where its definition has none.
_CODE = "*{{1}}* is your verification code."
_RECOMMENDATION = " For your security, do not share this code."
_EXPIRES = "This code expires in {minutes} minutes."

# Fields of a definition that the Graph API has as well.
DEFINED = ("name", "language", "category", "parameter_format", "components")

Status = Literal[
    "APPROVED",
    "PENDING",
    "REJECTED",
    "PAUSED",
    "DISABLED",
    "IN_APPEAL",
    "PENDING_DELETION",
    "DELETED",
    "LIMIT_EXCEEDED",
    "ARCHIVED",
]
Category = Literal["MARKETING", "UTILITY", "AUTHENTICATION"]
ParameterFormat = Literal["POSITIONAL", "NAMED"]
Name = Annotated[
    str,
    Matches("^[a-z0-9_]{1,512}$", "should be 1 to 512 lower-case letters (a to z), digits or underscores"),
    pydantic.Field(examples=["order_confirmation"]),
]
Namespace = Annotated[
    str, Matches("^[A-Za-z0-9_-]{1,64}$", "should be 1 to 64 letters (a to z), digits, underscores or hyphens")
]
Language = Annotated[
    str,
    Matches("^[a-z]{2,3}(_[A-Za-z0-9]{2,4})?$", "should be the code of a language, like en or en_US"),
    pydantic.Field(examples=["en_US"]),
]


def _are_a_template(parts: list[Any], info: pydantic.ValidationInfo) -> list[Any]:
    components.check(parts, info.data.get("category"), info.data.get("parameter_format"))
    return parts


class Definition(Body):
    """A template in one language. Without `namespace` it gets the account's namespace."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "order_confirmation",
                    "language": "en_US",
                    "category": "UTILITY",
                    "components": [
                        {"type": "BODY", "text": "Hello {{1}}, your order comes on {{2}}."},
                        {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": "Thanks"}]},
                    ],
                }
            ]
        }
    )

    name: Name
    language: Language
    namespace: Namespace | None = None
    category: Annotated[Category, UPPER] = "UTILITY"
    status: Annotated[Status, UPPER] = "APPROVED"
    parameter_format: Annotated[ParameterFormat, UPPER] = "POSITIONAL"
    components: Annotated[
        list[components.Component],
        pydantic.AfterValidator(_are_a_template),
        pydantic.Field(
            json_schema_extra={
                "maxItems": 5,
                "contains": {"type": "object", "required": ["type"], "properties": {"type": {"const": "BODY"}}},
            }
        ),
    ]

    def row(self, account: str, now: int) -> templates.TemplateRow:
        """Return the row to store.

        now: Unix milliseconds
        """
        document = self.model_dump(exclude_none=True)
        return templates.TemplateRow(
            account=account,
            name=self.name,
            language=self.language,
            namespace=self.namespace or templates.default_namespace(account),
            category=self.category,
            status=self.status,
            components=[_with_standard_texts(part) for part in document["components"]],
            created_at=now,
            parameter_format=self.parameter_format,
        )


Components = list[components.Component]


class TemplateEdit(Body):
    """Fields of a template to replace: its components as a whole, its category, or both."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "examples": [{"components": [{"type": "BODY", "text": "Hello {{1}}, your order came on {{2}}."}]}]
        }
    )

    category: Annotated[Category, UPPER] | None = None
    components: Components | None = None


def _with_standard_texts(part: dict[str, Any]) -> dict[str, Any]:
    """Add the standard texts that the definition of a one-time password may omit."""
    if part["type"] == "BODY" and "text" not in part:
        return part | {"text": _CODE + (_RECOMMENDATION if part.get("add_security_recommendation") else "")}
    if part["type"] == "FOOTER" and "text" not in part:
        return part | {"text": _EXPIRES.format(minutes=part["code_expiration_minutes"])}
    if part["type"] == "BUTTONS":
        buttons = [{"text": COPY_TEXT, **button} if button["type"] == OTP else button for button in part["buttons"]]
        return part | {"buttons": buttons}
    return part


def describe(template: templates.TemplateRow) -> dict[str, Any]:
    """Return a stored template as the API shows it."""
    return {
        "name": template.name,
        "language": template.language,
        "namespace": template.namespace,
        "category": template.category,
        "status": template.status,
        "parameter_format": template.parameter_format,
        "components": template.components,
    }


def defined(template: templates.TemplateRow) -> dict[str, Any]:
    """Return what defines a stored template, without its namespace and its status."""
    described = describe(template)
    return {name: described[name] for name in DEFINED}


class Described(pydantic.BaseModel):
    """A template as it is stored."""

    name: str = pydantic.Field(examples=["order_confirmation"])
    language: str = pydantic.Field(examples=["en_US"])
    namespace: str = pydantic.Field(examples=["0d0e1a6a_38bb_4a7b_9d59_37ba5eee6a5e"])
    category: str = pydantic.Field(examples=["UTILITY"])
    status: str = pydantic.Field(examples=["APPROVED"])
    parameter_format: str = pydantic.Field(examples=["POSITIONAL"])
    components: list[dict[str, Any]]


class TemplatesResponse(pydantic.BaseModel):
    """Response with templates, sorted by name and language."""

    templates: list[Described]
    meta: Meta
