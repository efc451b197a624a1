"""Buttons of a template, filled with the parameters of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidings.wire.codes import (
    PARAMETER_INVALID,
    PARAMETER_MISSING,
    TEMPLATE_BUTTON_UNSUPPORTED,
    TEMPLATE_COMPONENT_MISSING,
    TEMPLATE_PARAMETER_FORMAT,
)
from webapp.api.messages.hydration import check_words, fill_text, require_count
from webapp.api.messages.template_parameters import (
    ActionParameter,
    CouponParameter,
    Parameter,
    PayloadParameter,
    TextParameter,
)
from webapp.api.templates import buttons
from webapp.api.templates.buttons import AUTOFILL_TEXT, COPY_TEXT, MAX_CODE
from webapp.http.errors import InvalidRequest

MAX_URL_PART = 2000
UNUSED_TOKEN = "unused"  # flow token of a form that is opened without one # noqa: S105

# `sub_type` in messages for each type of button. A one-time password is sent as the end of a URL.
_SUB_TYPES = {
    "QUICK_REPLY": "quick_reply",
    "URL": "url",
    "COPY_CODE": "copy_code",
    "CATALOG": "catalog",
    "FLOW": "flow",
    "OTP": "url",
}

Filled = dict[str, Any]


class ButtonPart(Protocol):
    """Component of a message for one button."""

    @property
    def sub_type(self) -> str | None: ...

    @property
    def index(self) -> int | None: ...

    @property
    def parameters(self) -> list[Parameter] | None: ...


def fill_buttons(
    defined: Sequence[Mapping[str, Any]], given: Sequence[tuple[str, ButtonPart]], where: str
) -> list[Filled]:
    """Return all buttons of a template, filled. Raises `InvalidRequest`.

    given: path and component of each button in the message
    """
    by_number: dict[int, tuple[str, ButtonPart]] = {}
    for path, part in given:
        number = _number(defined, path, part)
        if number in by_number:
            raise InvalidRequest.because(PARAMETER_INVALID, f"{where}: names the same component twice")
        by_number[number] = (path, part)
    return [_fill(button, number, where, *by_number.get(number, ("", None))) for number, button in enumerate(defined)]


def _number(defined: Sequence[Mapping[str, Any]], path: str, part: ButtonPart) -> int:
    """Return the number of the template's button that a component fills: its index, or the only button of its type.

    Raises `InvalidRequest`.
    """
    if part.index is not None:
        if part.index >= len(defined):
            raise InvalidRequest.because(
                TEMPLATE_BUTTON_UNSUPPORTED, f"{path}.index: the template has no button {part.index}"
            )
        return part.index
    fitting = [n for n, button in enumerate(defined) if _SUB_TYPES.get(button["type"]) == part.sub_type]
    if not fitting:
        raise InvalidRequest.because(
            TEMPLATE_BUTTON_UNSUPPORTED, f"{path}.sub_type: the template has no button of sub_type {part.sub_type}"
        )
    if len(fitting) > 1:
        raise InvalidRequest.because(
            PARAMETER_MISSING,
            f"{path}: index is missing, the template has {len(fitting)} buttons of sub_type {part.sub_type}",
        )
    return fitting[0]


def _fill(button: Mapping[str, Any], number: int, where: str, path: str, part: ButtonPart | None) -> Filled:
    kind = button["type"]
    parameters = (part.parameters if part else None) or []
    if part is not None and part.sub_type != _SUB_TYPES.get(kind):
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT,
            f"{path}.sub_type: button {number} of the template is {kind.lower()}, not {part.sub_type}",
        )
    filled = {"type": kind.lower(), "text": button.get("text", COPY_TEXT)}
    name, inside = f"button {number}", f"{path}.parameters"
    if kind == "QUICK_REPLY":
        # Without a payload the button sends its text.
        payload = _one_at_most(parameters, (PayloadParameter, TextParameter), inside, name)
        filled["payload"] = filled["text"] if payload is None else getattr(payload, payload.type)
    elif kind == "URL":
        if "{{" in button["url"] and not parameters:
            raise InvalidRequest.because(TEMPLATE_COMPONENT_MISSING, f"{where}: {name} needs the end of its url")
        filled["url"] = fill_text(button["url"], parameters, inside, MAX_URL_PART, name, is_address=True)
    elif kind == "PHONE_NUMBER":
        filled["phone_number"] = button["phone_number"]
    elif kind in (buttons.COPY_CODE, buttons.OTP):
        if not parameters:
            raise InvalidRequest.because(TEMPLATE_COMPONENT_MISSING, f"{where}: {name} needs its code")
        kinds = (TextParameter,) if kind == buttons.OTP else (CouponParameter, TextParameter)
        code = _one_at_most(parameters, kinds, inside, name)
        filled["code"] = getattr(code, code.type)
        check_words(filled["code"], f"{inside}[0]", MAX_CODE)
        if kind == buttons.OTP:
            filled |= _one_time(button)
    elif kind == buttons.FLOW:
        filled |= _flow(button, _one_at_most(parameters, (ActionParameter,), inside, name))
    elif kind == "CATALOG":
        action = _one_at_most(parameters, (ActionParameter,), inside, name)
        if action is not None and action.action.thumbnail_product_retailer_id is not None:
            filled["thumbnail_product_retailer_id"] = action.action.thumbnail_product_retailer_id
    return filled


def _one_time(button: Mapping[str, Any]) -> Filled:
    filled: Filled = {"otp_type": button["otp_type"].lower()}
    if button["otp_type"] != buttons.OTP_COPY:
        filled |= {"autofill_text": button.get("autofill_text", AUTOFILL_TEXT), "apps": buttons.apps(dict(button))}
    return filled


def _flow(button: Mapping[str, Any], parameter: ActionParameter | None) -> Filled:
    filled: Filled = {name: button[name] for name in ("flow_id", "flow_name", "navigate_screen") if name in button}
    filled["flow_action"] = button.get("flow_action", "NAVIGATE").lower()
    action = parameter.action if parameter is not None else None
    filled["flow_token"] = (action.flow_token if action is not None else None) or UNUSED_TOKEN
    if action is not None and action.flow_action_data is not None:
        filled["flow_action_data"] = action.flow_action_data
    return filled


def _one_at_most(parameters: Sequence[Any], kinds: tuple[type[Any], ...], where: str, name: str) -> Any:
    """Return the only parameter; `None` for none. Raises `InvalidRequest` for more than one or one of another type."""
    require_count(min(1, len(parameters)), len(parameters), where, name)
    if not parameters:
        return None
    if not isinstance(parameters[0], kinds):
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT, f"{where}[0].type: does not fit the button, {parameters[0].type}"
        )
    return parameters[0]
