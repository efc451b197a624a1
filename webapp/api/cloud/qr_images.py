"""Pictures of QR codes."""

from __future__ import annotations

import io

import segno

PNG, SVG = "PNG", "SVG"
FORMATS = (SVG, PNG)
MEDIA_TYPES = {PNG: "image/png", SVG: "image/svg+xml"}
_SCALE = 10  # pixels of a module


def draw(text: str, form: str) -> bytes:
    """Return the picture of a QR code with this text.

    form: one of `FORMATS`
    """
    picture = io.BytesIO()
    segno.make_qr(text, error="m").save(picture, kind=form.lower(), scale=_SCALE)
    return picture.getvalue()
