"""Filling a template with the parameters of a message: what its recipient will read, or why it does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidings.storage.templates import Template as Stored
from webapp.errors import (
    NAMESPACE_EMPTY,
    TEMPLATE_BUTTON_UNSUPPORTED,
    TEMPLATE_COMPONENT_MISSING,
    TEMPLATE_DISABLED,
    TEMPLATE_MISSING,
    TEMPLATE_PARAMETER_COUNT,
    TEMPLATE_PARAMETER_FORMAT,
    TEMPLATE_PARAMETER_TOO_LONG,
    TEMPLATE_PAUSED,
    TEMPLATE_REJECTED,
    TEMPLATE_TEXT_TOO_LONG,
    TEMPLATE_WHITE_SPACE,
    FixRequest,
)
from webapp.messages.hsm import Hsm
from webapp.messages.template import (
    Component,
    CouponParameter,
    CurrencyParameter,
    DateTimeParameter,
    PayloadParameter,
    Template,
    TextParameter,
)

MAX_HEADER = 60
MAX_BODY = 1024
MAX_URL_PART = 2000

_GAP = re.compile(r"\{\{([0-9]{1,2})\}\}")
# No line breaks, no tabs, at most four blanks in a row.
_BAD_SPACE = re.compile(r"[\n\r\t\v\f]| {5}")
_UNSENDABLE = {"REJECTED": TEMPLATE_REJECTED, "PAUSED": TEMPLATE_PAUSED, "DISABLED": TEMPLATE_DISABLED}
_SUB_TYPES = {"QUICK_REPLY": "quick_reply", "URL": "url", "COPY_CODE": "copy_code", "CATALOG": "catalog"}

Filled = dict[str, Any]


def choose(name: str, language: str, namespace: str | None, found: Stored | None, languages: Sequence[str]) -> Stored:
    """The stored template, if it may be sent. Raises `FixRequest`."""
    if found is None:
        there = f"it exists in {', '.join(sorted(languages))}" if languages else "there is no template of that name"
        raise FixRequest.because(TEMPLATE_MISSING, f"template: name {name} does not exist in {language}: {there}")
    if namespace is not None and not namespace.strip():
        raise FixRequest.because(NAMESPACE_EMPTY, "template.namespace: should not be empty")
    if namespace is not None and namespace != found.namespace:
        raise FixRequest.because(
            TEMPLATE_MISSING, f"template.namespace: name {name} does not exist in the namespace {namespace}"
        )
    if found.status != "APPROVED":
        code = _UNSENDABLE.get(found.status, TEMPLATE_MISSING)
        raise FixRequest.because(code, f"template.name: {name} in {language} has the status {found.status}")
    return found


def fill(stored: Stored, template: Template) -> Filled:
    """header, body, footer, buttons as they are read. Raises `FixRequest`."""
    given = {_key(component): (index, component) for index, component in enumerate(template.components or ())}
    parts = {part["type"]: part for part in stored.components}
    filled: Filled = {}
    header = _header(parts.get("HEADER"), *given.pop("header", (0, None)))
    if header is not None:
        filled["header"] = header
    filled["body"] = _body(parts["BODY"], *given.pop("body", (0, None)))
    if "FOOTER" in parts:
        filled["footer"] = parts["FOOTER"]["text"]
    buttons = parts.get("BUTTONS", {}).get("buttons", ())
    made = [_button(button, number, *given.pop(f"button {number}", (0, None))) for number, button in enumerate(buttons)]
    if made:
        filled["buttons"] = made
    for index, component in given.values():
        raise FixRequest.because(
            TEMPLATE_BUTTON_UNSUPPORTED,
            f"template.components[{index}].index: the template has no button {component.index}",
        )
    return filled


def fill_hsm(stored: Stored, hsm: Hsm) -> Filled:
    """As `fill`; the parameters are those of the body. Raises `FixRequest`."""
    values = [parameter.default for parameter in hsm.localizable_params or ()]
    parts = {part["type"]: part for part in stored.components}
    where = "hsm.localizable_params"
    filled: Filled = {}
    header = _header(parts.get("HEADER"), 0, None)
    if header is not None:
        filled["header"] = header
    filled["body"] = _hydrate(parts["BODY"]["text"], values, where, lambda n: f"{where}[{n}].default", MAX_BODY)
    if "FOOTER" in parts:
        filled["footer"] = parts["FOOTER"]["text"]
    buttons = parts.get("BUTTONS", {}).get("buttons", ())
    if buttons:
        filled["buttons"] = [_button(button, number, 0, None) for number, button in enumerate(buttons)]
    return filled


def _key(component: Component) -> str:
    return f"button {component.index}" if component.type == "button" else component.type


def _header(part: Mapping[str, Any] | None, index: int, component: Component | None) -> Filled | None:
    parameters = (component.parameters if component else None) or []
    where = f"template.components[{index}].parameters" if component else "template.components"
    if part is None:
        _require_count(0, len(parameters), where, "the header, which the template does not have,")
        return None
    if part["format"] == "TEXT":
        values = [_words(parameter, f"{where}[{n}]") for n, parameter in enumerate(parameters)]
        return {
            "type": "text",
            "text": _hydrate(part["text"], values, where, lambda n: f"{where}[{n}]", MAX_HEADER, "the header"),
        }
    kind = part["format"].lower()
    if not parameters:
        raise FixRequest.because(TEMPLATE_COMPONENT_MISSING, f"template.components: the header needs its {kind}")
    _require_count(1, len(parameters), where, "the header")
    if parameters[0].type != kind:
        raise FixRequest.because(
            TEMPLATE_PARAMETER_FORMAT, f"{where}[0].type: the template's header takes {kind}, not {parameters[0].type}"
        )
    return {"type": kind}


def _body(part: Mapping[str, Any], index: int, component: Component | None) -> str:
    where = f"template.components[{index}].parameters" if component else "template.components"
    parameters = (component.parameters if component else None) or []
    values = [_words(parameter, f"{where}[{n}]") for n, parameter in enumerate(parameters)]
    return _hydrate(part["text"], values, where, lambda n: f"{where}[{n}]", MAX_BODY)


def _button(part: Mapping[str, Any], number: int, index: int, component: Component | None) -> Filled:
    where = f"template.components[{index}]"
    kind = part["type"]
    parameters = (component.parameters if component else None) or []
    if component is not None and component.sub_type != _SUB_TYPES.get(kind):
        raise FixRequest.because(
            TEMPLATE_PARAMETER_FORMAT,
            f"{where}.sub_type: button {number} of the template is {kind.lower()}, not {component.sub_type}",
        )
    filled = {"type": kind.lower(), "text": part.get("text", "Copy code")}
    if kind == "QUICK_REPLY":
        # Without a payload of its own the button sends its text.
        _require_count(min(1, len(parameters)), len(parameters), f"{where}.parameters", f"button {number}")
        payload = _only(parameters, (PayloadParameter, TextParameter), where) if parameters else None
        filled["payload"] = part["text"] if payload is None else getattr(payload, payload.type)
    elif kind == "URL":
        values = [_words(parameter, f"{where}.parameters[{n}]") for n, parameter in enumerate(parameters)]
        if "{{1}}" in part["url"] and not values:
            raise FixRequest.because(
                TEMPLATE_COMPONENT_MISSING, f"template.components: button {number} needs the end of its url"
            )
        filled["url"] = _hydrate(
            part["url"],
            values,
            f"{where}.parameters",
            lambda n: f"{where}.parameters[{n}]",
            MAX_URL_PART,
            f"button {number}",
        )
    elif kind == "PHONE_NUMBER":
        filled["phone_number"] = part["phone_number"]
    elif kind == "COPY_CODE":
        if not parameters:
            raise FixRequest.because(TEMPLATE_COMPONENT_MISSING, f"template.components: button {number} needs its code")
        _require_count(1, len(parameters), f"{where}.parameters", f"button {number}")
        code = _only(parameters, (CouponParameter, TextParameter), where)
        filled["code"] = getattr(code, code.type)
    return filled


def _only(parameters: Sequence[Any], kinds: tuple[type[Any], ...], where: str) -> Any:
    if not isinstance(parameters[0], kinds):
        raise FixRequest.because(
            TEMPLATE_PARAMETER_FORMAT, f"{where}.parameters[0].type: does not fit the button, {parameters[0].type}"
        )
    return parameters[0]


def _words(parameter: Any, where: str) -> str:
    """What a parameter puts into a gap. Raises `FixRequest` for one that is no words."""
    if isinstance(parameter, TextParameter):
        return parameter.text
    if isinstance(parameter, CurrencyParameter):
        return parameter.currency.fallback_value
    if isinstance(parameter, DateTimeParameter):
        return parameter.date_time.fallback_value
    raise FixRequest.because(TEMPLATE_PARAMETER_FORMAT, f"{where}.type: a text has no gap for {parameter.type}")


def _hydrate(
    text: str, values: Sequence[str], where: str, name: Callable[[int], str], limit: int, part: str = "the body"
) -> str:
    _require_count(len(set(_GAP.findall(text))), len(values), where, part)
    for n, value in enumerate(values):
        if len(value) > limit:
            raise FixRequest.because(
                TEMPLATE_PARAMETER_TOO_LONG, f"{name(n)}: has {len(value)} characters, the limit is {limit}"
            )
        if _BAD_SPACE.search(value):
            raise FixRequest.because(
                TEMPLATE_WHITE_SPACE, f"{name(n)}: should have no line breaks, no tabs and no five blanks in a row"
            )
    # In one pass: a value that looks like a gap stays as it is.
    hydrated = _GAP.sub(lambda gap: values[int(gap[1]) - 1], text)
    if len(hydrated) > limit:
        raise FixRequest.because(
            TEMPLATE_TEXT_TOO_LONG, f"{where}: {part} has {len(hydrated)} characters when filled, the limit is {limit}"
        )
    return hydrated


def _require_count(expected: int, given: int, where: str, part: str) -> None:
    if expected != given:
        raise FixRequest.because(TEMPLATE_PARAMETER_COUNT, f"{where}: {part} takes {expected} parameters, not {given}")
