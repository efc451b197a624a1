"""Client written from docs/device-api.md alone, with a second one as its peer, against the real network."""

from __future__ import annotations

import ast
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import DatabaseFactory
from tests.network import documented_device
from tests.network.documented_device import KEEP, DocumentedDevice, to_text
from tests.network.support import REGISTRATION_KEY, Network
from tidings import e2ee

BUSINESS, HANDSET = "15550000000", "15550100001"


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def net(database_factory: DatabaseFactory) -> AsyncIterator[Network]:
    database = await database_factory("network")
    net = Network(database.settings, "json")
    await net.start()
    yield net
    await net.remove()


def test_the_documented_client_imports_only_the_cryptography() -> None:
    tree = ast.parse(Path(documented_device.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    ours = ("tidings", "network", "handset", "coreapp", "webapp", "tests")
    assert [name for name in imported if name.split(".")[0] in ours] == ["tidings.e2ee"]


@pytest.fixture
async def documented_devices(
    net: Network, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[tuple[DocumentedDevice, DocumentedDevice]]:
    """Yield a business with the registration key and without Kyber, and a handset with a code and with Kyber."""
    url = f"http://127.0.0.1:{net.addresses.http[1]}"
    business, handset = DocumentedDevice(url, BUSINESS, kyber=False), DocumentedDevice(url, HANDSET, kyber=True)
    await business.register(key=REGISTRATION_KEY)
    with caplog.at_level(logging.INFO):
        assert (await handset.call("POST", "/v1/codes", {"number": HANDSET}))[0] == 202
    (code,) = [r.__dict__["code"] for r in caplog.records if r.message == "code.issued"]
    await handset.register(code=code)
    yield business, handset
    await business.disconnect()
    await handset.disconnect()


async def test_the_documented_client_receives_acknowledges_and_replies(
    documented_devices: tuple[DocumentedDevice, DocumentedDevice],
) -> None:
    business, handset = documented_devices
    await handset.connect()
    await business.connect()
    message_id = await business.write(HANDSET, "Hello")
    await handset.until(lambda: bool(handset.shown))
    assert handset.shown == [(BUSINESS, message_id, {"type": "text", "text": {"body": "Hello"}})]
    await business.until(lambda: business.statuses.get(message_id) == ["delivered"] and not business.outbox)
    await handset.read(BUSINESS, message_id)
    await business.until(lambda: business.statuses[message_id] == ["delivered", "read"])
    await handset.until(lambda: not handset.outbox)

    reply_id = await handset.write(BUSINESS, "Hello yourself")
    await handset.until(lambda: handset.statuses.get(reply_id) == ["delivered"])
    assert [(peer, content["text"]["body"]) for peer, _, content in business.shown] == [(HANDSET, "Hello yourself")]
    again = await business.write(HANDSET, "And again")
    await handset.until(lambda: len(handset.shown) == 2)
    await business.until(lambda: business.statuses.get(again) == ["delivered"])
    kinds = [frame["kind"] for arrow, frame in business.frames if arrow == "→" and frame["t"] == "send"]
    assert kinds == ["prekey", "delivered", "message"]
    assert (business.duplicates, handset.duplicates, business.refused, handset.refused) == (0, 0, {}, {})


async def test_the_documented_client_shows_a_repeated_delivery_once(
    documented_devices: tuple[DocumentedDevice, DocumentedDevice],
) -> None:
    business, handset = documented_devices
    await business.connect()
    ids = [await business.write(HANDSET, text) for text in ("one", "two", "three")]
    await business.until(lambda: not business.outbox)
    # The power fails twice between the commit and the acknowledgement.
    handset.acknowledging = False
    for failures in range(2):
        await handset.connect()
        await handset.until(lambda failures=failures: (len(handset.shown), handset.duplicates) == (3, 3 * failures))  # type: ignore[misc]
        await handset.disconnect()
    handset.acknowledging = True
    await handset.connect()
    await business.until(lambda: all(business.statuses.get(message_id) == ["delivered"] for message_id in ids))
    await handset.until(lambda: handset.duplicates == 6)
    await handset.ping()
    # An acknowledged message is not delivered again.
    await handset.disconnect()
    await handset.connect()
    ids.append(await business.write(HANDSET, "four"))
    await handset.until(lambda: len(handset.shown) == 4)
    assert handset.duplicates == 6
    texts = [(message_id, content["text"]["body"]) for _, message_id, content in handset.shown]
    assert texts == list(zip(ids, ("one", "two", "three", "four"), strict=True))


async def test_the_documented_client_recovers_an_unreadable_message_and_shows_it_once(
    documented_devices: tuple[DocumentedDevice, DocumentedDevice],
) -> None:
    business, handset = documented_devices
    await handset.connect()
    await business.connect()
    await business.write(HANDSET, "Hello")
    await handset.until(lambda: len(handset.shown) == 1)
    await handset.write(BUSINESS, "Hello yourself")
    await business.until(lambda: len(business.shown) == 1)
    for forgetful, writer, number in ((handset, business, HANDSET), (business, handset, BUSINESS)):
        before = len(forgetful.shown)
        forgetful.forget_sessions()
        message_id = await writer.write(number, "Do you remember me?")
        await writer.until(lambda w=writer, id=message_id: w.statuses.get(id) == ["delivered"])  # type: ignore[misc]
        (shown,) = forgetful.shown[before:]
        assert (shown[1], shown[2]["text"]["body"]) == (message_id, "Do you remember me?")
        requested = [frame for arrow, frame in writer.frames if arrow == "←" and frame.get("kind") == "retry"]
        assert [message_id] in [frame["refs"] for frame in requested]
        # Further messages use the repaired session.
        await writer.write(number, "Good")
        await forgetful.until(lambda f=forgetful, n=before: len(f.shown) == n + 2)  # type: ignore[misc]
    assert (business.refused, handset.refused) == ({}, {})


async def test_the_documented_client_handles_low_keys_refusals_and_new_identities(
    net: Network, documented_devices: tuple[DocumentedDevice, DocumentedDevice]
) -> None:
    business, handset = documented_devices
    await handset.connect()
    await handset.until(lambda: any(frame["t"] == "prekeys_low" for _, frame in handset.frames))
    await handset.refilled()
    await business.connect()
    first = await business.write(HANDSET, "Hello")
    await business.until(lambda: business.statuses.get(first) == ["delivered"])
    await handset.disconnect()
    assert await handset.count_prekeys() == KEEP - 1

    renewed = DocumentedDevice(f"http://127.0.0.1:{net.addresses.http[1]}", HANDSET, kyber=True)
    await renewed.register(key=REGISTRATION_KEY)
    await business.until(lambda: any(frame.get("kind") == "identity" for _, frame in business.frames))
    await renewed.connect()
    second = await business.write(HANDSET, "Who are you?")
    await business.until(lambda: business.statuses.get(second) == ["delivered"])
    assert [content["text"]["body"] for _, _, content in renewed.shown] == ["Who are you?"]

    status, response = await renewed.call("PUT", f"/v1/blocks/{HANDSET}/{BUSINESS}", None, renewed.token)
    assert (status, response["blocked"]) == (200, True)
    third = await business.write(HANDSET, "Are you there?")
    await business.until(lambda: business.refused.get(third) == "blocked")
    await renewed.disconnect()


async def test_a_first_message_under_another_than_the_registered_identity_is_refused(
    net: Network, documented_devices: tuple[DocumentedDevice, DocumentedDevice]
) -> None:
    business, handset = documented_devices
    await business.connect()
    await handset.connect()
    await handset.until(lambda: any(frame["t"] == "prekeys_low" for _, frame in handset.frames))
    await handset.refilled()
    registered, handset.identity = handset.identity, e2ee.IdentityKeyPair.generate()
    message_id = await handset.write(BUSINESS, "Trust me")
    await handset.until(lambda: message_id in handset.refused)
    assert handset.refused == {message_id: "invalid"}
    # A message under its own identity is accepted. The network does not check whether the recipient can decrypt it.
    handset.identity = registered
    handset.forget_sessions()
    own_id = await handset.write(BUSINESS, "Hello")
    await handset.until(lambda: handset.statuses.get(own_id) == ["delivered"])
    assert [content["text"]["body"] for _, _, content in business.shown] == ["Hello"]
    await handset.send_raw("15550100009", "prekey", to_text(b"no such message"))
    await handset.until(lambda: "no_such_number" in handset.refused.values())

    # After a new registration the number must use its new identity.
    renewed = DocumentedDevice(f"http://127.0.0.1:{net.addresses.http[1]}", HANDSET, kyber=True)
    await renewed.register(key=REGISTRATION_KEY)
    await renewed.connect()
    await renewed.until(lambda: any(frame["t"] == "prekeys_low" for _, frame in renewed.frames))
    await renewed.refilled()
    new_identity, renewed.identity = renewed.identity, registered
    stale_id = await renewed.write(BUSINESS, "From before")
    await renewed.until(lambda: renewed.refused.get(stale_id) == "invalid")
    renewed.identity = new_identity
    renewed.forget_sessions()
    fresh_id = await renewed.write(BUSINESS, "New here")
    await renewed.until(lambda: renewed.statuses.get(fresh_id) == ["delivered"])
    await renewed.disconnect()
