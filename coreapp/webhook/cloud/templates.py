"""Changes of templates as the Cloud API's webhooks show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidings.storage.business import templates
from tidings.storage.business.template_events import (
    AT,
    CATEGORY,
    COMPONENTS,
    DESCRIPTION,
    NEXT_CATEGORY,
    QUALITY,
    RECOMMENDATION,
    STATUS,
    TITLE,
    TemplateEvent,
)
from tidings.wire.cloud import identity

FIELDS: Mapping[str, str] = {
    STATUS: "message_template_status_update",
    QUALITY: "message_template_quality_update",
    CATEGORY: "template_category_update",
    NEXT_CATEGORY: "template_category_update",
    COMPONENTS: "message_template_components_update",
}
"""Fields of webhooks by the kind of the event."""

REINSTATED = "REINSTATED"  # event of a disabled template that is approved
# Titles and descriptions of `other_info`, for which the operator gives no others.
_PAUSED = ("FIRST_PAUSE", "The template is paused.")
_UNPAUSED = ("UNPAUSE", "The template is no longer paused.")
_DISABLED = ("DISABLED", "The template is disabled.")


_BUTTON_LINKS = ("url", "phone_number")


def id_of(event: TemplateEvent) -> str:
    return identity.template_id(event.account, event.namespace, event.name, event.language)


def value(event: TemplateEvent) -> Mapping[str, Any]:
    """Return the value of a webhook about a change of a template."""
    if event.kind == STATUS:
        return _status(event, event.created_at // 1000)
    if event.kind == QUALITY:
        return {"previous_quality_score": event.old_value, "new_quality_score": event.new_value, **_named(event)}
    if event.kind == COMPONENTS:
        return {**_named(event), **_components(msgspec.json.decode(event.info[COMPONENTS]))}
    if event.kind == NEXT_CATEGORY:
        # The present category is the value of `new_category`.
        return {
            **_named(event),
            "new_category": event.old_value,
            "correct_category": event.new_value,
            "category_update_timestamp": int(event.info[AT]),
        }
    return {**_named(event), "previous_category": event.old_value, "new_category": event.new_value}


def _named(event: TemplateEvent) -> dict[str, Any]:
    """Return the fields that name a template."""
    return {
        "message_template_id": int(id_of(event)),
        "message_template_name": event.name,
        "message_template_language": event.language.replace("_", "-"),
    }


def _components(components: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the texts of a template, and its buttons if one of them has a URL or a number."""
    by_type: Mapping[str, Mapping[str, Any]] = {str(part.get("type")): part for part in components}
    shown: dict[str, Any] = {
        f"message_template_{name}": by_type[kind]["text"]
        for name, kind in (("title", "HEADER"), ("element", "BODY"), ("footer", "FOOTER"))
        if "text" in by_type.get(kind, ())
    }
    buttons = by_type.get("BUTTONS", {}).get("buttons", ())
    if any(key in button for button in buttons for key in _BUTTON_LINKS):
        shown["message_template_buttons"] = [
            {f"message_template_button_{key}": button[key] for key in ("type", "text", *_BUTTON_LINKS) if key in button}
            for button in buttons
        ]
    return shown


def _status(event: TemplateEvent, seconds: int) -> Mapping[str, Any]:
    """Return the value of a change of the status.

    seconds: Unix time of the change
    """
    reached = event.new_value
    is_reinstated = (event.old_value, reached) == (templates.DISABLED, templates.APPROVED)
    shown = {
        "event": REINSTATED if is_reinstated else reached,
        **_named(event),
        "reason": event.reason,
        "message_template_category": event.category,
    }
    if reached == templates.DISABLED:
        shown["disable_info"] = {"disable_date": str(seconds)}
        shown["other_info"] = _other_info(event, _DISABLED)
    elif reached == templates.PAUSED:
        shown["other_info"] = _other_info(event, _PAUSED)
    elif (event.old_value, reached) == (templates.PAUSED, templates.APPROVED):
        shown["other_info"] = _other_info(event, _UNPAUSED)
    elif reached == templates.REJECTED and DESCRIPTION in event.info:
        shown["rejection_info"] = {
            "reason": event.info[DESCRIPTION],
            "recommendation": event.info.get(RECOMMENDATION, ""),
        }
    return shown


def _other_info(event: TemplateEvent, default: tuple[str, str]) -> Mapping[str, str]:
    title, description = default
    return {"title": event.info.get(TITLE, title), "description": event.info.get(DESCRIPTION, description)}
