"""Fill a template with the parameters of a message, or explain why they do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidings.storage.business import templates
from tidings.wire.codes import (
    NAMESPACE_EMPTY,
    PARAMETER_MISSING,
    TEMPLATE_COMPONENT_MISSING,
    TEMPLATE_DISABLED,
    TEMPLATE_MISSING,
    TEMPLATE_PARAMETER_COUNT,
    TEMPLATE_PARAMETER_FORMAT,
    TEMPLATE_PAUSED,
    TEMPLATE_REJECTED,
)
from webapp.api.messages.hsm import Hsm
from webapp.api.messages.hydration import fill_in_order, fill_text, require_count
from webapp.api.messages.template import Card, CardComponent, Component, Template
from webapp.api.messages.template_buttons import Filled, fill_buttons
from webapp.api.messages.template_parameters import LocationParameter, OfferParameter
from webapp.api.templates.components import MAX_BODY, MAX_CARD_BODY, MAX_HEADER
from webapp.http.errors import InvalidRequest

_UNSENDABLE = {"REJECTED": TEMPLATE_REJECTED, "PAUSED": TEMPLATE_PAUSED, "DISABLED": TEMPLATE_DISABLED}

AnyPart = Component | CardComponent


def choose(
    name: str, language: str, namespace: str | None, found: Sequence[templates.TemplateRow], languages: Sequence[str]
) -> templates.TemplateRow:
    """Return the stored template to send.

    Without a namespace, it is the only template in `found`, or the one in the account's default namespace. Raises
    `InvalidRequest` when there is none or it may not be sent.

    found: templates of this name and language, each in a different namespace
    languages: languages in which this name exists
    """
    if not found:
        namespaces = (
            f"it exists in {', '.join(sorted(languages))}" if languages else "there is no template with this name"
        )
        raise InvalidRequest.because(
            TEMPLATE_MISSING, f"template: name {name} does not exist in {language}: {namespaces}"
        )
    if namespace is not None and not namespace.strip():
        raise InvalidRequest.because(NAMESPACE_EMPTY, "template.namespace: should not be empty")
    wanted = namespace
    if wanted is None:
        wanted = found[0].namespace if len(found) == 1 else templates.default_namespace(found[0].account)
    chosen = next((stored for stored in found if stored.namespace == wanted), None)
    if chosen is None and namespace is None:
        namespaces = ", ".join(sorted(stored.namespace for stored in found))
        raise InvalidRequest.because(
            PARAMETER_MISSING, f"template.namespace: is missing, {name} exists in the namespaces {namespaces}"
        )
    if chosen is None:
        raise InvalidRequest.because(
            TEMPLATE_MISSING, f"template.namespace: name {name} does not exist in the namespace {namespace}"
        )
    if chosen.status != "APPROVED":
        code = _UNSENDABLE.get(chosen.status, TEMPLATE_MISSING)
        raise InvalidRequest.because(code, f"template.name: {name} in {language} has the status {chosen.status}")
    return chosen


def fill(stored: templates.TemplateRow, template: Template) -> Filled:
    """Return header, body, footer, buttons, cards and limited_time_offer as the recipient reads them.

    Raises `InvalidRequest`.
    """
    defined = {part["type"]: part for part in stored.components}
    return _fill(defined, list(template.components or ()), "template.components")


def fill_hsm(stored: templates.TemplateRow, hsm: Hsm) -> Filled:
    """Fill the template of an hsm message as `fill` does.

    The parameters are those of the body. Raises `InvalidRequest`.
    """
    defined = {part["type"]: part for part in stored.components}
    where = "hsm.localizable_params"
    values = [parameter.default for parameter in hsm.localizable_params or ()]
    text = _text_of(defined.get("BODY", {"type": "BODY"}))
    body = fill_in_order(text, values, where, "default", MAX_BODY, "the body")
    return _fill({kind: part for kind, part in defined.items() if kind != "BODY"}, (), "hsm") | {"body": body}


def _fill(defined: Mapping[str, Mapping[str, Any]], given: Sequence[Component], where: str) -> Filled:
    for n, part in enumerate(given):
        if part.type in ("carousel", "limited_time_offer") and part.type.upper() not in defined:
            raise InvalidRequest.because(TEMPLATE_PARAMETER_COUNT, f"{where}[{n}]: the template has no {part.type}")
    filled = _fill_parts(defined, given, where, MAX_BODY)
    if "LIMITED_TIME_OFFER" in defined:
        filled["limited_time_offer"] = _offer(defined["LIMITED_TIME_OFFER"]["limited_time_offer"], given, where)
    if "CAROUSEL" in defined:
        filled["cards"] = _cards(defined["CAROUSEL"]["cards"], given, where)
    return filled


def _fill_parts(defined: Mapping[str, Mapping[str, Any]], given: Sequence[AnyPart], where: str, most: int) -> Filled:
    """Fill the components that templates and cards have in common.

    most: limit of the body, in characters
    """
    paths = {part.type: (f"{where}[{n}]", part) for n, part in enumerate(given)}
    filled: Filled = {}
    header = _header(defined.get("HEADER"), where, *paths.get("header", ("", None)))
    if header is not None:
        filled["header"] = header
    path, part = paths.get("body", ("", None))
    if "BODY" in defined:
        filled["body"] = fill_text(
            _text_of(defined["BODY"]),
            (part.parameters if part else None) or [],
            f"{path}.parameters" if path else where,
            most,
            "the body",
        )
    elif part is not None:
        require_count(0, len(part.parameters or ()), f"{path}.parameters", "the body, which is not in the card,")
    if "FOOTER" in defined:
        filled["footer"] = _text_of(defined["FOOTER"])
    pressed = [(f"{where}[{n}]", part) for n, part in enumerate(given) if part.type == "button"]
    made = fill_buttons(defined.get("BUTTONS", {}).get("buttons", ()), pressed, where)
    if made:
        filled["buttons"] = made
    return filled


def _text_of(defined: Mapping[str, Any]) -> str:
    """Return the text of a component. Raises `InvalidRequest`: a mirrored template may have none."""
    text = defined.get("text")
    if not isinstance(text, str):
        raise _incomplete(defined, "text")
    return text


def _incomplete(defined: Mapping[str, Any], field: str) -> InvalidRequest:
    part = str(defined.get("type", "component")).lower()
    return InvalidRequest.because(TEMPLATE_COMPONENT_MISSING, f"the template's {part} has no {field}")


def _header(defined: Mapping[str, Any] | None, where: str, path: str, part: AnyPart | None) -> Filled | None:
    parameters = (part.parameters if part else None) or []
    inside = f"{path}.parameters" if part else where
    if defined is None:
        require_count(0, len(parameters), inside, "the header, which is not in the template,")
        return None
    if "format" not in defined:
        raise _incomplete(defined, "format")
    if defined["format"] == "TEXT":
        return {"type": "text", "text": fill_text(_text_of(defined), parameters, inside, MAX_HEADER, "the header")}
    kind = defined["format"].lower()
    if not parameters:
        raise InvalidRequest.because(TEMPLATE_COMPONENT_MISSING, f"{where}: the header needs its {kind}")
    require_count(1, len(parameters), inside, "the header")
    if parameters[0].type != kind:
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT, f"{inside}[0].type: the template's header takes {kind}, not {parameters[0].type}"
        )
    if isinstance(parameters[0], LocationParameter):
        return {"type": kind, kind: parameters[0].location.model_dump(exclude_none=True)}
    return {"type": kind}


def _offer(defined: Mapping[str, Any], given: Sequence[Component], where: str) -> Filled:
    path, part = _find(given, "limited_time_offer", where)
    parameters = (part.parameters if part else None) or []
    filled: Filled = {"text": defined.get("text", "")}
    if not defined.get("has_expiration", False):
        require_count(0, len(parameters), f"{path}.parameters", "the offer, which does not expire,")
        return filled
    if not parameters:
        raise InvalidRequest.because(
            TEMPLATE_COMPONENT_MISSING, f"{where}: the limited_time_offer needs its expiration_time_ms"
        )
    require_count(1, len(parameters), f"{path}.parameters", "the offer")
    if not isinstance(parameters[0], OfferParameter):
        raise InvalidRequest.because(
            TEMPLATE_PARAMETER_FORMAT,
            f"{path}.parameters[0].type: should be limited_time_offer, not {parameters[0].type}",
        )
    return filled | {"expiration_time_ms": parameters[0].limited_time_offer.expiration_time_ms}


def _cards(defined: Sequence[Mapping[str, Any]], given: Sequence[Component], where: str) -> list[Filled]:
    path, part = _find(given, "carousel", where)
    sent: dict[int, tuple[str, Card]] = {}
    for n, card in enumerate((part.cards if part else None) or ()):
        number = n if card.card_index is None else card.card_index
        if number in sent or number >= len(defined):
            why = "names the same card twice" if number in sent else f"the template has no card {number}"
            code = TEMPLATE_PARAMETER_FORMAT if number in sent else TEMPLATE_PARAMETER_COUNT
            raise InvalidRequest.because(code, f"{path}.cards[{n}].card_index: {why}")
        sent[number] = (f"{path}.cards[{n}].components", card)
    if len(sent) != len(defined):
        details = f"{f'{path}.cards' if part else where}: the template has {len(defined)} cards, not {len(sent)}"
        raise InvalidRequest.because(TEMPLATE_PARAMETER_COUNT, details)
    cards = []
    for number, card_defined in enumerate(defined):
        inside, card = sent[number]
        parts = {component["type"]: component for component in card_defined["components"]}
        cards.append({"index": number} | _fill_parts(parts, card.components or (), inside, MAX_CARD_BODY))
    return cards


def _find(given: Sequence[Component], kind: str, where: str) -> tuple[str, Component | None]:
    """Return the path and the component of a type; the path of all components and `None` when it is absent."""
    for n, part in enumerate(given):
        if part.type == kind:
            return f"{where}[{n}]", part
    return where, None
