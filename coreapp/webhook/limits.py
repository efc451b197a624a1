"""Maximum lengths of the parts of a recipient's message: those that the API allows a business to write.

A longer part makes the content unsupported, so that a program which handles everything the API can express never gets
more. Only names (of a profile or a file) are cut instead. The table is in docs/device-api.md.
"""

from __future__ import annotations

import os
import re
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_PROFILE_NAME = 128  # characters; longer names are cut
MAX_FILE_NAME = 255  # characters; longer names are cut before their extension
MAX_EXTENSION = 16  # longest extension that is kept, characters

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
Payload = Annotated[str, Meta(max_length=32_768)]  # same limit as a template parameter, from which it may come
Form = Annotated[str, Meta(max_length=65_536)]  # JSON
CatalogId = Annotated[str, Meta(max_length=100)]
Quantity = Annotated[int, Meta(ge=1, lt=2**31)]
Price = Annotated[float, Meta(ge=0)]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z")]
# Characters that are neither letters nor ASCII, except keycaps. The longest known emojis have 10 characters. An empty
# one is allowed.
Emoji = Annotated[str, Meta(pattern=r"^(?:[^\x00-\x7f\w\s]|[0-9#*](?=\ufe0f?\u20e3)|\u2139){0,32}\Z")]

_TOO_LONG = re.compile(r"of length <= (\d+)(?: - at `\$(.*)`)?")


def describe(kind: str, error: Exception) -> str:
    """Return a sentence that names the part that is too long; empty for another error."""
    found = _TOO_LONG.search(str(error)) if isinstance(error, msgspec.ValidationError) else None
    return f"{kind}{found[2] or ''} is longer than {int(found[1]):,} characters" if found else ""


def cut_file_name(name: str) -> str:
    """Return the name, cut to the limit before its extension."""
    if len(name) <= MAX_FILE_NAME:
        return name
    stem, extension = os.path.splitext(name)
    extension = extension if len(extension) <= MAX_EXTENSION else ""
    return stem[: MAX_FILE_NAME - len(extension)] + extension
