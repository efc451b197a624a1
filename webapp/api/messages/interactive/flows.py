"""Messages whose button opens a form (a flow), or requests a location."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from tidings.wire.codes import FLOW_ID, FLOW_MODE, FLOW_VERSION, PARAMETER_MISSING
from webapp.api.messages.interactive.parts import BodyText, Footer, Header
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length, Maybe

VERSION = "3"
MODES = ("published", "draft")


def _is_version(version: str) -> str:
    if version != VERSION:
        raise refusal(FLOW_VERSION, "should be {version}", version=VERSION)
    return version


def _is_mode(mode: str) -> str:
    if mode not in MODES:
        raise refusal(FLOW_MODE, "should be one of {modes}", modes=", ".join(MODES))
    return mode


class FlowPayload(Body):
    """The screen at which the form opens, and its data."""

    screen: Annotated[str, Length(255)]
    data: dict[str, Any] | None = None


class FlowParameters(Body):
    flow_message_version: Annotated[
        str, pydantic.AfterValidator(_is_version), pydantic.Field(json_schema_extra={"enum": [VERSION]})
    ]
    flow_token: Annotated[str, Length(1024)]
    flow_id: Annotated[str, Length(64, over=FLOW_ID, empty=FLOW_ID)]
    flow_cta: Annotated[str, Length(20)]
    flow_action: Maybe[Literal["navigate", "data_exchange"]] = None
    mode: Maybe[
        Annotated[str, pydantic.AfterValidator(_is_mode), pydantic.Field(json_schema_extra={"enum": list(MODES)})]
    ] = None
    flow_action_payload: FlowPayload | None = None

    @pydantic.model_validator(mode="after")
    def _has_payload(self) -> FlowParameters:
        if self.flow_action == "navigate" and self.flow_action_payload is None:
            raise refusal(PARAMETER_MISSING, "flow_action_payload is missing, which flow_action navigate needs")
        return self


class FlowAction(Body):
    name: Literal["flow"]
    parameters: FlowParameters


class FlowMessage(Body):
    type: Literal["flow"]
    header: Header | None = None
    body: BodyText
    footer: Footer = None
    action: FlowAction


class LocationRequestAction(Body):
    name: Literal["send_location"]


class LocationRequestMessage(Body):
    type: Literal["location_request_message"]
    body: BodyText
    action: LocationRequestAction
