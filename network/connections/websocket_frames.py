"""Frames of WebSockets (RFC 6455, section 5), as a server reads and writes them. No extension is negotiated."""

from __future__ import annotations

from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

# Status codes of section 7.4.1.
NORMAL, PROTOCOL_ERROR, INCONSISTENT, POLICY_VIOLATION, TOO_BIG = 1000, 1002, 1007, 1008, 1009
INTERNAL_ERROR, RESTART = 1011, 1012

# Codes that must not appear in a `CLOSE`.
_NEVER_SENT = frozenset((1004, 1005, 1006))

_OPCODES = frozenset((CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG))
# Maximum bytes of a control frame's payload (section 5.5), and of the reason in a `CLOSE`.
_CONTROL = 125
_REASON = _CONTROL - 2
# Section 5.2: smallest payload in bytes whose length is written in two (126) and in eight (127) bytes, and the largest
# payload.
_LEAST = {126: 126, 127: 65_536}
_MAX_SIZE = 2**63 - 1


class Violation(Exception):
    """The peer broke the protocol; the connection is closed with this status code."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Head(NamedTuple):
    """Frame header."""

    opcode: int
    is_last: bool  # FIN bit.
    key: bytes  # Masking key.
    start: int  # Offset of the payload.
    end: int  # Offset behind the payload.


def read_head(data: memoryview, position: int, *, limit: int) -> Head | None:
    """Return the header at this position, `None` while it is incomplete. Raises `Violation`.

    The caller checks whether the payload is complete.

    limit: largest payload, bytes.
    """
    available = len(data) - position
    if available < 2:
        return None
    first, second = data[position], data[position + 1]
    opcode = first & 0x0F
    if first & 0x70 or opcode not in _OPCODES:
        raise Violation(PROTOCOL_ERROR, "reserved bits or a reserved opcode")
    if not second & 0x80:
        raise Violation(PROTOCOL_ERROR, "a frame without a mask")
    size, start = second & 0x7F, position + 2
    if opcode >= CLOSE and (size > _CONTROL or not first & 0x80):
        raise Violation(PROTOCOL_ERROR, "a control frame that is too long or fragmented")
    if size > 125:
        start += 2 if size == 126 else 8
        if start > len(data):
            return None
        written = size
        size = int.from_bytes(data[position + 2 : start], "big")
        if size < _LEAST[written] or size > _MAX_SIZE:
            raise Violation(PROTOCOL_ERROR, "a length that is not in its shortest form, or has its highest bit set")
    if size > limit:
        raise Violation(TOO_BIG, f"over {limit} bytes")
    if start + 4 > len(data):
        return None
    return Head(opcode, bool(first & 0x80), bytes(data[start : start + 4]), start + 4, start + 4 + size)


def unmask(payload: memoryview, key: bytes) -> bytes:
    """Return the unmasked payload (section 5.3)."""
    size = len(payload)
    if not size or key == b"\0\0\0\0":
        return bytes(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")


def head_of(opcode: int, size: int) -> bytes:
    """Return the header of an unmasked frame with a payload of `size` bytes."""
    if size < 126:
        return bytes((0x80 | opcode, size))
    if size < 65536:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")


def response_to_closing(payload: bytes) -> int:
    """Return the status code for the response to a peer's `CLOSE`: its own, or the error in it (section 7.4)."""
    if not payload:
        return NORMAL
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code <= 1014 or 3000 <= code <= 4999) or code in _NEVER_SENT:
        return PROTOCOL_ERROR
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return INCONSISTENT
    return code


def closing(code: int, reason: str) -> bytes:
    """Return a complete `CLOSE` frame."""
    payload = code.to_bytes(2, "big") + reason.encode()[:_REASON]
    return head_of(CLOSE, len(payload)) + payload
