"""Every frame survives the wire, in MessagePack and in JSON, and is distinguished by its kind."""

from __future__ import annotations

import contextlib
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.wire import core, device

UNIONS = {
    "device to network": device.FromDevice,
    "network to device": device.FromNetwork,
    "webapp to coreapp": core.Request,
    "coreapp to webapp": core.Response,
}
NAMED = [pytest.param(frames, id=name) for name, frames in UNIONS.items()]


def values(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Return any value of an annotation that fits on the wire."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{name: values(hints[name]) for name in hint.__struct_fields__})
    if hint == device.Number:
        return st.integers(0, 2**63 - 1)
    if typing.get_origin(hint) is typing.Annotated:
        return values(typing.get_args(hint)[0])
    if typing.get_origin(hint) is list:
        return st.lists(values(typing.get_args(hint)[0]), max_size=5)
    if typing.get_args(hint):
        return st.one_of([values(choice) for choice in typing.get_args(hint)])
    return st.integers(-(2**63), 2**64 - 1) if hint is int else st.from_type(hint)


@pytest.mark.parametrize("frames", NAMED)
@given(data=st.data())
def test_a_frame_survives_encoding_and_decoding(frames: typing.Any, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(typing.get_args(frames)).flatmap(values))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=frames) == frame
    assert msgspec.json.decode(msgspec.json.encode(frame), type=frames) == frame


@pytest.mark.parametrize("frames", NAMED)
def test_frame_kinds_of_one_direction_have_distinct_tags(frames: typing.Any) -> None:
    tags = [kind.__struct_config__.tag for kind in typing.get_args(frames)]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("frames", NAMED)
@given(junk=st.binary(max_size=100))
def test_decoding_junk_raises_only_decoder_errors(frames: typing.Any, junk: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError):
        msgspec.msgpack.decode(junk, type=frames)


def test_a_field_of_a_later_version_is_ignored() -> None:
    later = msgspec.msgpack.encode({"t": "ack", "n": [1], "invented_later": True})
    assert msgspec.msgpack.decode(later, type=device.FromDevice) == device.Ack(n=[1])


def test_the_sender_field_is_named_from_on_the_wire() -> None:
    frame = device.Send(n=1, sender="15550000000", to="15550110001", id="a", kind=device.MESSAGE)
    assert msgspec.to_builtins(frame)["from"] == "15550000000"
