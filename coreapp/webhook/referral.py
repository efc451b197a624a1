"""Advertisement or post that led a recipient to the business, as a message refers to it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Words = Annotated[str, Meta(max_length=2_048)]


class Referral(msgspec.Struct, omit_defaults=True, gc=False):
    """Referral of a message. Its pictures and videos are omitted: they are not fetched."""

    source_url: Words
    source_type: Annotated[str, Meta(max_length=64)] | None = None
    source_id: Annotated[str, Meta(max_length=128)] | None = None
    headline: Words | None = None
    body: Words | None = None
