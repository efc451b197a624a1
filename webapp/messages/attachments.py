"""Where a message has media objects: in its content, in the header of a template, in an interactive header."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from webapp.messages.fields import Media
from webapp.messages.schemas import (
    AnyMessage,
    AudioMessage,
    DocumentMessage,
    ImageMessage,
    InteractiveMessage,
    StickerMessage,
    TemplateMessage,
    VideoMessage,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """One media object. field: its path in the request; kind: `image` say; id or provider may be empty."""

    field: str
    kind: str
    id: str
    provider: str
    in_template: bool = False


def find(message: AnyMessage) -> Sequence[Attachment]:
    """Those of a message."""
    if isinstance(message, ImageMessage | AudioMessage | VideoMessage | DocumentMessage | StickerMessage):
        return [_attachment(message.kind, message.kind, getattr(message, message.kind))]
    if isinstance(message, InteractiveMessage):
        header = getattr(message.interactive, "header", None)
        if header is None or header.type == "text":
            return []
        return [_attachment(f"interactive.header.{header.type}", header.type, getattr(header, header.type))]
    if isinstance(message, TemplateMessage):
        return [
            _attachment(f"template.components[{n}].parameters[{m}].{parameter.type}", parameter.type, held, True)
            for n, component in enumerate(message.template.components or ())
            for m, parameter in enumerate(component.parameters or ())
            if isinstance(held := getattr(parameter, parameter.type), Media)
        ]
    return []


def _attachment(field: str, kind: str, media: Media, in_template: bool = False) -> Attachment:
    provider = media.provider.name if media.provider is not None else ""
    return Attachment(field, kind, media.id or "", provider, in_template)
