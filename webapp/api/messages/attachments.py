"""Media objects of a message: in its content, in a template's components, or in an interactive header."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from webapp.api.messages.fields import Media
from webapp.api.messages.interactive.cloud_types import CarouselMessage
from webapp.api.messages.schemas import (
    Addressed,
    AudioMessage,
    DocumentMessage,
    ImageMessage,
    InteractiveMessage,
    StickerMessage,
    TemplateMessage,
    VideoMessage,
)
from webapp.api.messages.template import Part


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """Media object of a message."""

    field: str  # its path in the request
    kind: str  # for example `image`
    id: str  # empty unless the file was uploaded
    link: str  # empty unless the file is given by link
    provider: str  # name of the media provider; empty for none
    in_template: bool = False


def find(message: Addressed) -> Sequence[Attachment]:
    """Return the attachments of a message."""
    if isinstance(message, ImageMessage | AudioMessage | VideoMessage | DocumentMessage | StickerMessage):
        return [_attachment(message.kind, message.kind, getattr(message, message.kind))]
    if isinstance(message, InteractiveMessage):
        if isinstance(message.interactive, CarouselMessage):
            return list(_of_carousel(message.interactive))
        header = getattr(message.interactive, "header", None)
        if header is None or header.type == "text":
            return []
        return [_attachment(f"interactive.header.{header.type}", header.type, getattr(header, header.type))]
    if isinstance(message, TemplateMessage):
        parts = message.template.components or ()
        cards = [
            (f"template.components[{n}].cards[{m}].components", card.components or ())
            for n, part in enumerate(parts)
            for m, card in enumerate(part.cards or ())
        ]
        return [found for where, inside in [("template.components", parts), *cards] for found in _of(where, inside)]
    return []


def _of_carousel(carousel: CarouselMessage) -> Iterator[Attachment]:
    for n, card in enumerate(carousel.action.cards):
        if card.header is not None:
            where = f"interactive.action.cards[{n}].header.{card.header.type}"
            yield _attachment(where, card.header.type, getattr(card.header, card.header.type))


def _of(where: str, parts: Sequence[Part]) -> Iterator[Attachment]:
    for n, part in enumerate(parts):
        for m, parameter in enumerate(part.parameters or ()):
            held = getattr(parameter, parameter.type)
            if isinstance(held, Media):
                yield _attachment(f"{where}[{n}].parameters[{m}].{parameter.type}", parameter.type, held, True)


def _attachment(field: str, kind: str, media: Media, in_template: bool = False) -> Attachment:
    provider = media.provider.name if media.provider is not None else ""
    return Attachment(field, kind, media.id or "", media.link or "", provider, in_template)
