"""How long the parts of a recipient's message may be: as long as the API lets a business write them.

What is longer is no content of ours, so that a program which takes what the API can say is never sent more. Only what
names a thing and says nothing (a profile, a file) is cut instead. The table is in docs/device-api.md.
"""

from __future__ import annotations

import os
import re
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_PROFILE_NAME = 128  # characters; what is longer is cut
MAX_FILE_NAME = 255  # characters; what is longer is cut before its extension
MAX_EXTENSION = 16

Body = Annotated[str, Meta(min_length=1, max_length=4_096)]
Caption = Annotated[str, Meta(max_length=1_024)]
Word = Annotated[str, Meta(max_length=1_024)]
Url = Annotated[str, Meta(max_length=2_048)]
MimeType = Annotated[str, Meta(max_length=255)]
Hash = Annotated[str, Meta(max_length=64)]
ButtonId = Annotated[str, Meta(max_length=256)]
ButtonTitle = Annotated[str, Meta(max_length=20)]
RowId = Annotated[str, Meta(max_length=200)]
RowTitle = Annotated[str, Meta(max_length=24)]
RowDescription = Annotated[str, Meta(max_length=72)]
QuickReply = Annotated[str, Meta(max_length=25)]
Payload = Annotated[str, Meta(max_length=32_768)]  # a parameter of a template, which it may be, has as many
Form = Annotated[str, Meta(max_length=65_536)]  # JSON
CatalogId = Annotated[str, Meta(max_length=100)]
Quantity = Annotated[int, Meta(ge=1, lt=2**31)]
Price = Annotated[float, Meta(ge=0)]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
# What has no letters and is not ASCII, but for keycaps; the longest known have 10 characters. An empty one is allowed.
Emoji = Annotated[str, Meta(pattern=r"^(?:[^\x00-\x7f\w\s]|[0-9#*](?=\ufe0f?\u20e3)|\u2139){0,32}\Z")]

_TOO_LONG = re.compile(r"of length <= (\d+)(?: - at `\$(.*)`)?")


def describe(kind: str, error: Exception) -> str:
    """What is too long in a content of this kind; empty when it is something else that is wrong."""
    found = _TOO_LONG.search(str(error)) if isinstance(error, msgspec.ValidationError) else None
    return f"{kind}{found[2] or ''} is longer than {int(found[1]):,} characters" if found else ""


def cut_file_name(name: str) -> str:
    """A name that keeps its extension."""
    if len(name) <= MAX_FILE_NAME:
        return name
    stem, extension = os.path.splitext(name)
    extension = extension if len(extension) <= MAX_EXTENSION else ""
    return stem[: MAX_FILE_NAME - len(extension)] + extension
