"""Subset of protobuf's wire format that Signal's messages need: varints and byte strings.

Stricter than protobuf: numbers must fit 32 bits, byte strings must end inside the message, and a message has at most
`MAX_FIELDS` fields. Unknown fields are skipped, whatever their wire type; groups are rejected.
"""

from typing import Final

from tidings.e2ee import errors

MAX_FIELDS: Final = 64
MAX_VARINT_BYTES: Final = 10
MAX_UINT32: Final = 2**32 - 1

_VARINT = 0
_FIXED_64 = 1
_BYTES = 2
_FIXED_32 = 5
_ONE_BYTE_VARINTS: Final = tuple(bytes([value]) for value in range(0x80))


def varint(value: int) -> bytes:
    """Encode a non-negative number in base 128."""
    if value < 0x80:
        return _ONE_BYTE_VARINTS[value]
    output = bytearray()
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


def uint_field(number: int, value: int) -> bytes:
    return varint(number << 3 | _VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises InvalidMessage when the number does not end, or is longer than ten bytes.
    """
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        for count in range(1, MAX_VARINT_BYTES):
            byte = data[position + count]
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                return value, position + count + 1
    except IndexError:
        raise errors.InvalidMessage("a number is truncated") from None
    raise errors.InvalidMessage("a number is too long")


def parse(data: bytes, position: int, end: int) -> dict[int, int | bytes]:
    """Return the fields in data[position:end] by number; of a repeated field, the last.

    Raises InvalidMessage on anything that is not well-formed.
    """
    fields: dict[int, int | bytes] = {}
    for _ in range(MAX_FIELDS):
        if position >= end:
            break
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise errors.InvalidMessage("a field number is out of range")
        if wire_type == _BYTES:
            length, position = read_varint(data, position)
            after = position + length
            if after > end:
                raise errors.InvalidMessage("a field is truncated")
            fields[number] = data[position:after]
            position = after
        elif wire_type == _VARINT:
            fields[number], position = read_varint(data, position)
        elif wire_type == _FIXED_64:
            position += 8
        elif wire_type == _FIXED_32:
            position += 4
        else:
            raise errors.InvalidMessage(f"wire type {wire_type}")
    if position != end:
        raise errors.InvalidMessage("the message is truncated, or has too many fields")
    return fields


def take_uint32(fields: dict[int, int | bytes], number: int) -> int | None:
    """Return the number in a field, or None when it is absent. Raises InvalidMessage on bytes or more than 32 bits."""
    value = fields.get(number)
    if value is None:
        return None
    if not isinstance(value, int) or value > MAX_UINT32:
        raise errors.InvalidMessage(f"field {number} is not a 32-bit number")
    return value


def take_bytes(fields: dict[int, int | bytes], number: int) -> bytes | None:
    """Return the bytes in a field, or None when it is absent. Raises InvalidMessage on a number."""
    value = fields.get(number)
    if value is None:
        return None
    if not isinstance(value, bytes):
        raise errors.InvalidMessage(f"field {number} is not a byte string")
    return value
