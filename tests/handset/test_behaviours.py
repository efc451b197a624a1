"""Behaviour of a robot according to its number, and its reaction to a message."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handset.application import ReceivedMessage, SendReceipt, SendText
from handset.robots import behaviours
from handset.robots.behaviours import Behaviour, actions, behaviour_of, number_of
from handset.sending import outbox
from handset.settings import RobotsSettings
from tidings.config.env import SettingsError
from tidings.wire import content
from tidings.wire import device as wire


def message(number: str, *, kind: str = "text") -> ReceivedMessage:
    return ReceivedMessage(number, "15550000000", "m1", 1, 1, 1_700_000_000_000, kind, "hello")


@given(st.sampled_from(Behaviour), st.integers(0, behaviours.MAX_PER_KIND - 1))
def test_a_number_determines_the_behaviour_of_its_robot(behaviour: Behaviour, index: int) -> None:
    number = number_of(behaviour, index)
    assert len(number) == 11
    assert behaviour_of(number) is behaviour


@pytest.mark.parametrize("prefix", ["919876", "1", "447700900"])
def test_robots_may_use_other_prefixes(prefix: str) -> None:
    prefixes = ("15550", prefix)
    for behaviour in Behaviour:
        for each in prefixes:
            assert behaviour_of(number_of(behaviour, 7, each), prefixes) is behaviour
    assert behaviour_of(f"{prefix}110007") is None
    assert behaviour_of(f"{prefix}190007", prefixes) is None
    assert behaviour_of(f"{prefix}0110007", prefixes) is None


@given(st.one_of(st.text(max_size=12), st.from_regex(r"\A1555[0-9]{7}\Z")))
def test_any_other_number_is_not_a_robot(number: str) -> None:
    expected = number.startswith("1555011") or any(number.startswith(f"155501{n}") for n in "2345678")
    if len(number) != 11 or not number.isascii() or not number.isdigit():
        expected = False
    assert (behaviour_of(number) is not None) == expected


def test_each_behaviour_has_its_reaction_to_a_text() -> None:
    delivered, read = SendReceipt(wire.DELIVERED), SendReceipt(wire.READ)
    done = {kind: tuple(actions(kind, message(number_of(kind, 1)))) for kind in Behaviour if kind is not Behaviour.SLOW}
    assert done == {
        Behaviour.READS: (delivered, read),
        Behaviour.DELIVERED_ONLY: (delivered,),
        Behaviour.OFFLINE: (),
        Behaviour.ECHOES: (delivered, read, SendText("hello")),
        Behaviour.UNKNOWN: (),
        Behaviour.BLOCKS: (delivered, read),
        Behaviour.ANSWERS: (delivered, read),
    }


def test_an_echo_robot_describes_messages_without_text() -> None:
    number = number_of(Behaviour.ECHOES, 1)
    place = dataclasses.replace(
        message(number, kind="location"), text="", raw='{"type":"location","location":{"latitude":1,"longitude":2}}'
    )
    assert actions(Behaviour.ECHOES, place)[-1] == SendText("[location] 1, 2")
    cards = ",".join('{"name":{"formatted_name":"Ada Lovelace"}}' for _ in range(300))
    people = dataclasses.replace(message(number, kind="contacts"), text="", raw=f'{{"contacts":[{cards}]}}')
    echoed = actions(Behaviour.ECHOES, people)[-1]
    assert isinstance(echoed, SendText)
    assert len(echoed.text) <= 4096


@given(st.text(max_size=64))
def test_the_delay_of_a_slow_robot_is_one_to_five_seconds_and_deterministic(message_id: str) -> None:
    delay = behaviours.slow_delay(message_id)
    assert 1.0 <= delay <= 5.0
    assert delay == behaviours.slow_delay(message_id)


def test_ids_have_the_inbound_format_and_sort_by_time() -> None:
    made = [outbox.make_id(1_700_000_000 + n) for n in range(100)]
    assert made == sorted(made)
    assert all(len(each) == 27 and each.startswith("ABGG") and each.isalnum() and each.isascii() for each in made)
    assert len({outbox.make_id(1_700_000_000) for _ in range(1000)}) == 1000


@given(st.text())
def test_a_text_round_trips_through_content(text: str) -> None:
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        return
    decoded = content.decode(content.encode_text(text))
    assert decoded.text is not None
    assert decoded.text.body == text


@pytest.mark.parametrize(
    "plaintext",
    [
        *(b"", b"\xff", b"[]", b"{}", b'{"type":1}', b'{"type":"text"}', b'{"type":"text","text":{}}'),
        b'{"type":"text","text":{"body":"\xff"}}',
        pytest.param(b'{"type":"x","x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", id="nested"),
    ],
)
def test_invalid_content_raises_unreadable_content(plaintext: bytes) -> None:
    with pytest.raises(content.UnreadableContent):
        content.decode(plaintext)


def test_an_unknown_type_is_kept() -> None:
    assert content.decode(b'{"type":"image","image":{"id":"1"}}').type == "image"


def test_robot_settings_report_all_mistakes_at_once(tmp_path: object) -> None:
    environment = {
        "TIDINGS_DATA_DIR": str(tmp_path),
        "TIDINGS_ROBOTS_KINDS": "11,99",
        "TIDINGS_ROBOTS_PER_KIND": "many",
        "TIDINGS_ROBOTS_BLOCK": "nobody",
        "TIDINGS_ROBOTS_PREFIXES": "+91, +0, +1234567890",
        "TIDINGS_NETWORK_HTTP_URL": "127.0.0.1",
    }
    with pytest.raises(SettingsError) as raised:
        RobotsSettings.read(environment)
    for name in ("KINDS", "PER_KIND", "BLOCK", "HTTP_URL", "'0'", "'1234567890'"):
        assert name in str(raised.value)


def test_robot_settings_have_the_documented_defaults(tmp_path: object) -> None:
    settings = RobotsSettings.read({"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_ROBOTS_KINDS": "11, 14"})
    assert settings.kinds == (Behaviour.READS, Behaviour.ECHOES)
    assert settings.prefixes == ("15550",)
    assert (settings.per_kind, settings.prekeys, settings.connections) == (100, 5, 2)
    assert str(settings.log_path) == f"{tmp_path}/robots.jsonl"
    assert "handset.db" in settings.database.url


def test_a_test_number_with_a_user_name_echoes() -> None:
    reaction = tuple(actions(behaviour_of("15550370007"), message("15550370007")))
    assert reaction == (SendReceipt(wire.DELIVERED), SendReceipt(wire.READ), SendText("hello"))
