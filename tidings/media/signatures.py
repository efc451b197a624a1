"""Checks of a file's type by its first bytes. Each function needs at least 1,024 of them, or the whole file."""

from __future__ import annotations

from collections.abc import Callable

STICKER_SIDE = 512  # pixels

# Major brands of ISO base media files that are neither audio nor video in MPEG-4: pictures and QuickTime.
_OTHER_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1", b"avif", b"avis", b"qt  ", b"crx ")
_SOUND_BRANDS = (b"M4A ", b"M4B ", b"M4P ")
_FILM_BRANDS = (b"M4V ", b"M4VH", b"M4VP")


def _starting_with(*marks: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(marks)


is_jpeg = _starting_with(b"\xff\xd8\xff")
is_png = _starting_with(b"\x89PNG\r\n\x1a\n")
is_gif = _starting_with(b"GIF87a", b"GIF89a")
is_amr = _starting_with(b"#!AMR\n", b"#!AMR-WB\n")
is_zip = _starting_with(b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
is_gzip = _starting_with(b"\x1f\x8b")


def is_webp(head: bytes) -> bool:
    return head.startswith(b"RIFF") and head[8:12] == b"WEBP"


def is_aac(head: bytes) -> bool:
    """Return whether these are ADTS frames, possibly behind an ID3 tag, or ADIF."""
    is_adts = len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0
    return is_adts or head.startswith((b"ID3", b"ADIF"))


def is_mpeg_audio(head: bytes) -> bool:
    """Return whether this is a frame of layer I, II or III, possibly behind an ID3 tag."""
    is_frame = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06 != 0
    return is_frame or head.startswith(b"ID3")


def is_ogg_opus(head: bytes) -> bool:
    """Return whether this is an Ogg page whose packet is the head of an Opus stream (RFC 7845, section 5.1)."""
    segments = head[26] if len(head) > 26 else 0
    return head.startswith(b"OggS") and head[27 + segments :].startswith(b"OpusHead")


def is_mp4_audio(head: bytes) -> bool:
    brand = _brand(head)
    return brand is not None and brand not in _OTHER_BRANDS and brand not in _FILM_BRANDS


def is_mp4_video(head: bytes) -> bool:
    brand = _brand(head)
    return brand is not None and brand not in _OTHER_BRANDS and brand not in _SOUND_BRANDS


def is_3gpp(head: bytes) -> bool:
    """Return whether a major or compatible brand is one of 3GPP's."""
    if _brand(head) is None:
        return False
    box = head[8 : int.from_bytes(head[:4])]
    return any(box[at : at + 2] == b"3g" for at in range(0, len(box), 4))


def is_pdf(head: bytes) -> bool:
    """Return whether the PDF mark is within the first 1,024 bytes, where readers search for it."""
    return b"%PDF-" in head[:1024]


def sticker_problem(head: bytes) -> str:
    """Return why a WebP picture is not a sticker, to follow "the sticker "; empty when it is one."""
    form, data = head[12:16], head[20:]
    if form == b"VP8X" and len(data) >= 10:
        if data[0] & 0x02:
            return "is animated"
        size = (int.from_bytes(data[4:7], "little") + 1, int.from_bytes(data[7:10], "little") + 1)
    elif form == b"VP8L" and len(data) >= 5 and data[0] == 0x2F:
        bits = int.from_bytes(data[1:5], "little")
        size = ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    elif form == b"VP8 " and len(data) >= 10 and data[3:6] == b"\x9d\x01\x2a":
        size = (int.from_bytes(data[6:8], "little") & 0x3FFF, int.from_bytes(data[8:10], "little") & 0x3FFF)
    else:
        return "has no readable picture"
    if size != (STICKER_SIDE, STICKER_SIDE):
        return f"is {size[0]} x {size[1]} pixels, not {STICKER_SIDE} x {STICKER_SIDE}"
    return ""


def _brand(head: bytes) -> bytes | None:
    """Return the major brand of an ISO base media file (ISO/IEC 14496-12, section 4.3); `None` for another file."""
    return head[8:12] if head[4:8] == b"ftyp" and len(head) >= 12 else None
