"""Small files of every accepted type, and some that do not match their type."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _box(name: bytes, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">I", len(data) + 8) + name + data


def _ogg(packet: bytes) -> bytes:
    return b"OggS" + struct.pack("<BBqIIIB", 0, 2, 0, 1, 0, 0, 1) + bytes([len(packet)]) + packet


def webp(width: int, height: int, *, animated: bool = False) -> bytes:
    """Return a file in the extended format, whose header contains the size."""
    head = bytes([0x02 if animated else 0, 0, 0, 0]) + (width - 1).to_bytes(3, "little")
    data = _riff(b"VP8X", head + (height - 1).to_bytes(3, "little"))
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data


def webp_lossless(width: int, height: int) -> bytes:
    data = _riff(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14) + b"\0" * 8)
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data


def webp_lossy(width: int, height: int) -> bytes:
    data = _riff(b"VP8 ", b"\x10\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height) + b"\0" * 8)
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data


def _riff(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data


def _brand(major: bytes, *others: bytes) -> bytes:
    return _box(b"ftyp", major, b"\0\0\0\0", *others) + _box(b"mdat", b"\0" * 32)


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\0"))
    + _chunk(b"IEND", b"")
)
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + b"\xff\xd9"
PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<</Root 1 0 R>>\n%%EOF\n"
GIF = b"GIF89a\x01\0\x01\0\0\0\0;"

SAMPLES: Mapping[str, bytes] = {
    "image/jpeg": JPEG,
    "image/png": PNG,
    "image/webp": webp(512, 512),
    "audio/aac": b"\xff\xf1\x50\x80\x02\x1f\xfc" + b"\0" * 16,
    "audio/mp4": _brand(b"M4A ", b"mp42"),
    "audio/amr": b"#!AMR\n" + b"\x3c" * 32,
    "audio/mpeg": b"\xff\xfb\x90\x00" + b"\0" * 32,
    "audio/ogg; codecs=opus": _ogg(b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0"),
    "video/mp4": _brand(b"isom", b"mp42"),
    "video/3gpp": _brand(b"3gp4", b"isom"),
    "application/pdf": PDF,
    "image/gif": GIF,
    "application/zip": b"PK\x05\x06" + b"\0" * 18,
    "application/gzip": b"\x1f\x8b\x08" + b"\0" * 15,
    "text/plain; charset=utf-8": "Grüße\n".encode(),
    "application/octet-stream": b"\0",
}
VORBIS = _ogg(b"\x01vorbis" + b"\0" * 23)
QUICKTIME = _brand(b"qt  ")
HEIC = _brand(b"heic", b"mif1")
HTML = b"<!doctype html><script>alert(1)</script>"
