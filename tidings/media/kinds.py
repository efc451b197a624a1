"""Files that may be sent: kinds, with their types and sizes, and the check of a file against its type.

The table is that of the On-Premises API's page on media. MB are read as MiB, so nothing that it allows is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from tidings.media import signatures
from tidings.media.errors import UnusableType

IMAGE = "image"
AUDIO = "audio"
VIDEO = "video"
DOCUMENT = "document"
STICKER = "sticker"
KINDS = (IMAGE, AUDIO, VIDEO, DOCUMENT, STICKER)

_MIB = 1024 * 1024
# Largest size in bytes, by kind.
LIMITS: Mapping[str, int] = {
    IMAGE: 5 * _MIB,
    AUDIO: 16 * _MIB,
    VIDEO: 16 * _MIB,
    DOCUMENT: 100 * _MIB,
    STICKER: 100 * 1024,
}
MAX_SIZE = max(LIMITS.values())
# Bytes at the start of a file that `MediaType.check` needs; all of a smaller file.
HEAD = 1024

OPUS = "audio/ogg; codecs=opus"
UNKNOWN = "application/octet-stream"
PDF = "application/pdf"

# Kind and check of a file's first bytes, by type. All other types are documents of any content.
_TYPES: Mapping[str, tuple[str, Callable[[bytes], bool]]] = {
    "audio/aac": (AUDIO, signatures.is_aac),
    "audio/mp4": (AUDIO, signatures.is_mp4_audio),
    "audio/amr": (AUDIO, signatures.is_amr),
    "audio/mpeg": (AUDIO, signatures.is_mpeg_audio),
    OPUS: (AUDIO, signatures.is_ogg_opus),
    "image/jpeg": (IMAGE, signatures.is_jpeg),
    "image/png": (IMAGE, signatures.is_png),
    "image/webp": (STICKER, signatures.is_webp),
    "image/gif": (DOCUMENT, signatures.is_gif),
    "video/mp4": (VIDEO, signatures.is_mp4_video),
    "video/3gpp": (VIDEO, signatures.is_3gpp),
    PDF: (DOCUMENT, signatures.is_pdf),
    "application/zip": (DOCUMENT, signatures.is_zip),
    "application/gzip": (DOCUMENT, signatures.is_gzip),
}

MAX_LENGTH = 255
# RFC 6838, section 4.2.
_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_TYPE = re.compile(rf"\s*({_NAME}/{_NAME})\s*", re.ASCII)
# RFC 9110, sections 5.6.2 and 5.6.6.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARAMETER = re.compile(rf';\s*(?:({_TOKEN.pattern})=({_TOKEN.pattern}|"[^"\\\r\n]*")\s*)?')


@dataclasses.dataclass(frozen=True, slots=True)
class MediaType:
    """An accepted type."""

    # Canonical spelling, such as `audio/ogg; codecs=opus`; at most 255 ASCII characters.
    text: str
    # Default kind of a message with a file of this type.
    kind: str
    # Bytes.
    limit: int

    def check(self, head: bytes) -> None:
        """Raise `UnusableType` if the file that starts with `head` is not of this type.

        head: the first `HEAD` bytes, or all of a smaller file.
        """
        known = _TYPES.get(self.text.partition(";")[0] if self.kind == DOCUMENT else self.text)
        if known is not None and not known[1](head):
            raise UnusableType(f"the file is not of the type {self.text}")
        if self.kind == STICKER:
            problem = signatures.sticker_problem(head)
            if problem:
                raise UnusableType(f"the sticker {problem}")


def parse(content_type: str) -> MediaType:
    """Return the type that a Content-Type names. Raises `UnusableType` if it is invalid or not accepted."""
    essence, parameters = _split(content_type)
    if essence == "audio/ogg":
        if parameters.get("codecs", "").lower() != "opus":
            raise UnusableType("audio/ogg is accepted only as audio/ogg; codecs=opus")
        return MediaType(OPUS, AUDIO, LIMITS[AUDIO])
    if essence.startswith("multipart/"):
        raise UnusableType(f"{essence} is not accepted: the body is the file itself, with its own type")
    kind = kind_of(essence)
    text = essence
    if kind == DOCUMENT:
        text += "".join(f"; {name}={_quoted(value)}" for name, value in parameters.items())
        if len(text) > MAX_LENGTH:
            raise UnusableType("the type is too long")
    return MediaType(text, kind, LIMITS[kind])


def kind_of(mime_type: str) -> str:
    """Return the default kind of a file of this type (as `MediaType.text`)."""
    return _TYPES[mime_type][0] if mime_type in _TYPES else DOCUMENT


def may_be_sent_as(mime_type: str, kind: str) -> bool:
    """Return whether a file of this type (as `MediaType.text`) may have that kind; a document may be of any type."""
    return kind in (DOCUMENT, kind_of(mime_type))


def types_of(kind: str) -> tuple[str, ...]:
    """Return the types of a kind; none for documents, which may have any."""
    return tuple(sorted(text for text, (of, _) in _TYPES.items() if of == kind != DOCUMENT))


def _quoted(value: str) -> str:
    """Return a parameter's value, in quotes if needed."""
    return value if _TOKEN.fullmatch(value) else f'"{value}"'


def _split(content_type: str) -> tuple[str, dict[str, str]]:
    """Return (type in lower case, parameters)."""
    found = _TYPE.match(content_type)
    if found is None or len(content_type) > MAX_LENGTH or not (content_type.isascii() and content_type.isprintable()):
        raise UnusableType("the type is not a MIME type")
    parameters = {}
    position = found.end()
    while position < len(content_type):
        parameter = _PARAMETER.match(content_type, position)
        if parameter is None:
            raise UnusableType("the type is not a MIME type")
        if parameter[1]:
            parameters[parameter[1].lower()] = parameter[2].strip('"')
        position = parameter.end()
    return found[1].lower(), parameters
