"""Content of a text message."""

from __future__ import annotations

from typing import Annotated

import pydantic

from tidings.wire.codes import MESSAGE_TOO_LONG
from webapp.http.bodies import Body
from webapp.http.constraints import Length

MAX_TEXT = 4096  # characters


class Text(Body):
    """Text to send. `preview_url`, here or next to `text`, sets whether links in it are previewed."""

    body: Annotated[str, Length(MAX_TEXT, over=MESSAGE_TOO_LONG), pydantic.Field(examples=["Hello"])]
    preview_url: bool | None = None
