"""A template as its recipient's handset shows it, with examples in the place of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from webapp.api.templates.placeholders import PLACEHOLDER

Part = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class PreviewedButton:
    """Button of a template."""

    label: str
    more: str = ""  # URL or number below the label


@dataclasses.dataclass(slots=True)
class TemplatePreview:
    """Parts of a template or of one card, in the order of the page; a part that is missing is empty."""

    header: str = ""
    header_format: str = ""  # `image`, `video`, `document` or `location` for a header that is no text
    offer: str = ""
    body: str = ""
    footer: str = ""
    buttons: Sequence[PreviewedButton] = ()
    cards: Sequence[TemplatePreview] = ()


def preview(components: Sequence[Part]) -> TemplatePreview:
    """Return the preview of stored components. Parameters without an example are shown as they are named."""
    shown = TemplatePreview()
    for part in components:
        kind = str(part.get("type", "")).upper()
        text = str(part.get("text", ""))
        if kind == "HEADER":
            form = str(part.get("format", "TEXT")).lower()
            if form == "text":
                shown.header = _filled(text, part, "header_text")
            else:
                shown.header_format = form
        elif kind == "BODY":
            shown.body = _filled(text, part, "body_text")
        elif kind == "FOOTER":
            shown.footer = text
        elif kind == "LIMITED_TIME_OFFER":
            shown.offer = str(part["limited_time_offer"]["text"])
        elif kind == "BUTTONS":
            shown.buttons = [_button(button) for button in part["buttons"]]
        elif kind == "CAROUSEL":
            shown.cards = [preview(card["components"]) for card in part["cards"]]
    return shown


def _button(button: Part) -> PreviewedButton:
    url = str(button.get("url") or "")
    example = button.get("example")
    if isinstance(example, list) and example:
        # The example of a URL is the whole URL or the end that its variable stands for.
        end = str(example[0])
        url = end if end.startswith(("http://", "https://")) else PLACEHOLDER.sub(lambda _: end, url)
    return PreviewedButton(str(button.get("text") or ""), url or str(button.get("phone_number") or ""))


def _filled(text: str, part: Part, name: str) -> str:
    """Return a text with the examples of its component.

    name: field of the component's `example` that lists values; with `_named_params` after it, names and values
    """
    example = part.get("example")
    if not isinstance(example, dict):
        return text
    listed = example.get(name)
    if isinstance(listed, list) and listed and isinstance(listed[0], list):
        listed = listed[0]
    values = {str(n + 1): str(value) for n, value in enumerate(listed)} if isinstance(listed, list) else {}
    named = example.get(f"{name}_named_params")
    for each in named if isinstance(named, list) else ():
        if isinstance(each, dict):
            values[str(each.get("param_name"))] = str(each.get("example"))
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)
