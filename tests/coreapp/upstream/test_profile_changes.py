"""Profile and PIN of the number are those of the Cloud API: changed there, and mirrored here."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coreapp.upstream import change_calls, profile_changes
from harness import polling
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.upstream.conftest import attach
from tests.coreapp.upstream.scripted_cloud import TOKEN, ScriptedCloud
from tests.coreapp.upstream.scripted_profile import CUT, HOLD, JPEG
from tests.coreapp.upstream.test_template_changes import failed
from tidings.storage.business import profiles
from tidings.storage.business.profiles import Photo, StoredProfile
from tidings.storage.database import Connection
from tidings.wire import codes, core

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
SHOP = StoredProfile("1 Main Street", "Parcels", "desk@example.com", "Education", ("https://example.com",))
IN_CLOUD = {
    "address": "1 Main Street",
    "description": "Parcels",
    "email": "desk@example.com",
    "vertical": "EDU",
    "websites": ["https://example.com"],
}


async def stored(world: World) -> tuple[str, StoredProfile, Photo | None]:
    """Return about text, business profile and photo as v1 shows them."""

    async def read(connection: Connection) -> tuple[str, StoredProfile, Photo | None]:
        about, business = (
            await profiles.find_about(connection, BUSINESS),
            await profiles.find_business(connection, BUSINESS),
        )
        return about, business, await profiles.find_photo(connection, BUSINESS)

    return await world.database.query(read)


async def until_stored(world: World, about: str) -> None:
    """Wait until the about text is mirrored."""

    async def is_there() -> bool:
        return (await stored(world))[0] == about

    await polling.until(is_there, seconds=10.0, pause=0.01)


async def started(world: World, cloud: ScriptedCloud, about: str = "old") -> Running:
    """Start a Coreapp, and wait until it has mirrored a profile with this about text."""
    cloud.profile.fields["about"] = about
    running = await world.start()
    await until_stored(world, about)
    return running


async def change(running: Running, *, photo: str = "", kind: str = "", **fields: Any) -> core.Done | core.Refused:
    """Request a change of the profile as a Webapp does. Returns the Coreapp's response."""
    body = json.dumps(fields).encode()
    response = await running.client.call(lambda n: core.ChangeProfile(n, BUSINESS, body, photo, kind))
    assert isinstance(response, core.Done | core.Refused)
    return response


async def set_pin(running: Running, pin: str = "123456") -> core.Done | core.Refused:
    response = await running.client.call(lambda n: core.SetPin(n, BUSINESS, pin))
    assert isinstance(response, core.Done | core.Refused)
    return response


async def put_file(running: Running, content: bytes) -> str:
    """Store a photo as a Webapp does. Returns its name."""

    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return (await running.shard.context.files.write(chunks(), limit=len(content))).name


async def test_the_profile_of_the_cloud_api_is_mirrored(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.profile.fields, cloud.profile.photo = {**IN_CLOUD, "about": "Open"}, JPEG
    await upstream_world.start()
    await until_stored(upstream_world, "Open")
    assert await stored(upstream_world) == ("Open", SHOP, Photo("image/jpeg", JPEG))
    # The host of the photo is another one than the Cloud API's.
    assert set(cloud.profile.photo_tokens) == {None}


async def test_a_profile_that_is_emptied_in_the_cloud_api_is_empty_here(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.profile.fields, cloud.profile.photo = {**IN_CLOUD, "about": "Open"}, JPEG
    running = await upstream_world.start()
    await until_stored(upstream_world, "Open")
    cloud.profile.fields, cloud.profile.photo = {}, b""
    assert running.shard.upstream is not None
    assert await running.shard.upstream.profile.mirror.run_once()
    assert await stored(upstream_world) == ("", StoredProfile(), None)


@pytest.mark.parametrize(
    "shown",
    [
        (200, "<html>"),
        (200, '{"data":[]}'),
        (200, '{"data":[{"about":7}]}'),
        (200, json.dumps({"data": [{"about": "x" * 256}]})),
        (200, json.dumps({"data": [{"websites": ["x"] * 17}]})),
        (400, failed(190)),
        CUT,
    ],
)
async def test_a_profile_that_cannot_be_read_leaves_the_stored_one(
    upstream_world: World, cloud: ScriptedCloud, shown: tuple[int, str] | str
) -> None:
    running = await started(upstream_world, cloud)
    cloud.profile.fields, cloud.profile.shown = {"about": "new"}, shown
    assert running.shard.upstream is not None
    assert not await running.shard.upstream.profile.mirror.run_once()
    assert (await stored(upstream_world))[0] == "old"


@pytest.mark.parametrize(("content", "status"), [(b"GIF89a", 200), (JPEG, 404), (JPEG + bytes(5 * 1024 * 1024), 200)])
async def test_a_photo_that_cannot_be_used_leaves_the_stored_one_and_the_texts_are_stored(
    upstream_world: World, cloud: ScriptedCloud, caplog: pytest.LogCaptureFixture, content: bytes, status: int
) -> None:
    cloud.profile.photo = PNG
    running = await started(upstream_world, cloud)
    cloud.profile.photo, cloud.profile.photo_status = content, status
    cloud.profile.fields |= {"about": "new"}
    assert running.shard.upstream is not None
    for _ in range(2):
        assert not await running.shard.upstream.profile.mirror.run_once()
    about, _, photo = await stored(upstream_world)
    assert (about, photo) == ("new", Photo("image/png", PNG))
    assert [record.message for record in caplog.records].count("upstream.photo_not_read") == 1


async def test_only_values_that_differ_are_posted_and_then_shown(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.profile.fields = {**IN_CLOUD, "email": "old@example.com"}
    running = await started(upstream_world, cloud)
    wanted = {**IN_CLOUD, "vertical": "education", "websites": []}
    assert isinstance(await change(running, **wanted), core.Done)
    assert cloud.profile.posts == [{"email": "desk@example.com", "websites": []}]
    expected = StoredProfile("1 Main Street", "Parcels", "desk@example.com", "Education", ())
    assert await stored(upstream_world) == ("old", expected, None)
    assert isinstance(await change(running, about="new"), core.Done)
    assert cloud.profile.posts[1:] == [{"about": "new"}]
    assert await stored(upstream_world) == ("new", expected, None)


async def test_a_change_that_the_profile_has_already_posts_nothing(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    assert isinstance(await change(running, about="old", vertical="", address=""), core.Done)
    assert cloud.profile.posts == []


async def test_an_industry_is_removed(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.profile.fields = {"vertical": "RETAIL"}
    running = await started(upstream_world, cloud)
    assert (await stored(upstream_world))[1].vertical == "Shopping and Retail"
    assert isinstance(await change(running, vertical=""), core.Done)
    assert cloud.profile.posts == [{"vertical": "UNDEFINED"}]
    assert (await stored(upstream_world))[1].vertical == ""


async def test_an_industry_that_the_cloud_api_does_not_have_is_refused(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await started(upstream_world, cloud)
    response = await change(running, vertical="Lighthouses")
    assert isinstance(response, core.Refused)
    assert response.code == 1009
    assert "Travel and Transportation" in response.details
    assert cloud.profile.posts == []


async def test_a_photo_is_uploaded_for_the_app_of_the_token_and_shown(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await started(upstream_world, cloud)
    for content, kind in ((JPEG, "image/jpeg"), (PNG, "image/png")):
        response = await change(running, photo=await put_file(running, content), kind=kind)
        assert isinstance(response, core.Done)
        assert (await stored(upstream_world))[2] == Photo(kind, content)
        query, headers, sent = cloud.profile.uploads[-1]
        assert query == {"file_length": str(len(content)), "file_type": kind, "file_name": "photo"}
        assert (headers["Authorization"], headers["file_offset"], sent) == (f"OAuth {TOKEN}", "0", content)
    assert cloud.profile.token_reads == 1
    # Another token may be that of another app.
    await attach(upstream_world.database, cloud.url, token="N3W", changed_at=2)
    await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS))
    await change(running, photo=await put_file(running, JPEG), kind="image/jpeg")
    assert cloud.profile.token_reads == 2


async def test_a_photo_of_five_mebibytes_is_set(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    content = JPEG + bytes(5 * 1024 * 1024 - len(JPEG))
    response = await change(running, photo=await put_file(running, content), kind="image/jpeg")
    assert isinstance(response, core.Done)
    assert cloud.profile.uploads[-1][2] == content


@pytest.mark.parametrize(
    ("response", "code"), [((400, failed(100, message="(#100) bad picture")), 1009), ((200, "{}"), 1011), (CUT, 1011)]
)
async def test_a_photo_that_cannot_be_uploaded_changes_nothing(
    upstream_world: World, cloud: ScriptedCloud, response: Any, code: int
) -> None:
    running = await started(upstream_world, cloud)
    cloud.profile.upload_response = response
    refused = await change(running, about="new", photo=await put_file(running, JPEG), kind="image/jpeg")
    assert isinstance(refused, core.Refused)
    assert refused.code == code
    assert "unknown" not in refused.details
    assert cloud.profile.posts == []
    assert (await stored(upstream_world))[::2] == ("old", None)


async def test_a_photo_whose_file_is_gone_changes_nothing(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    name = await put_file(running, JPEG)
    await running.shard.context.files.delete([name])
    response = await change(running, about="new", photo=name, kind="image/jpeg")
    assert isinstance(response, core.Refused)
    assert (response.code, response.retry_after) == (1011, 1)
    assert cloud.profile.posts == []


async def test_a_pin_is_set_in_the_cloud_api(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    assert isinstance(await set_pin(running), core.Done)
    assert cloud.profile.pins == ["123456"]


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (400, failed(100, message="(#100) Invalid parameter"), 1009),
        (400, failed(133005), 1009),
        (400, failed(133009), 1015),
        (400, failed(133008), 1015),
        (403, failed(10), 1005),
        (401, failed(190), 1000),
        (400, failed(80007), 1015),
        (503, failed(2), 1016),
        (400, failed(999), 1025),
        (200, '{"success":false}', 1000),
        (502, "<html>", 1011),
        (200, "<html>", 1011),
    ],
)
async def test_errors_of_the_cloud_api_become_those_of_v1(
    upstream_world: World, cloud: ScriptedCloud, status: int, text: str, code: int
) -> None:
    running = await started(upstream_world, cloud)
    cloud.profile.response = (status, text)
    for response in (await set_pin(running), await change(running, about="new")):
        assert isinstance(response, core.Refused)
        assert response.code == code
        assert (response.retry_after > 0) == (codes.find(code).status in (429, 503))
        assert ("unknown" in response.details) == (status >= 500 or text == "<html>")
    assert (await stored(upstream_world))[0] == "old"


async def test_a_change_whose_response_is_lost_is_mirrored_soon(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    cloud.profile.response, cloud.profile.fields = CUT, {"about": "new"}
    response = await change(running, about="newer")
    assert isinstance(response, core.Refused)
    assert "unknown" in response.details
    await until_stored(upstream_world, "new")


async def test_a_hung_cloud_api_fails_a_call_within_9_seconds(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    cloud.profile.response = HOLD
    started_at = time.monotonic()
    # The second waits for the first. On a busy machine it may start in the last moment of its 6 s.
    responses = await asyncio.gather(change(running, about="new"), set_pin(running))
    assert time.monotonic() - started_at < 9.0
    for response in responses:
        assert isinstance(response, core.Refused)
        assert response.code == codes.NOT_READY
        assert "does not respond within 6 s" in response.details
    assert "is unknown" in responses[0].details  # type: ignore[union-attr]
    if cloud.profile.pins or "nothing was changed" not in responses[1].details:  # type: ignore[union-attr]
        assert "is unknown" in responses[1].details  # type: ignore[union-attr]


async def test_a_ninth_change_at_the_same_time_is_refused(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profile_changes.AT_ONCE == 8
    monkeypatch.setattr(change_calls, "CHANGE_SECONDS", 60.0)
    running = await started(upstream_world, cloud)
    cloud.profile.response = HOLD
    held = [asyncio.create_task(set_pin(running)) for _ in range(8)]
    await polling.until(lambda: len(cloud.profile.pins) == 1, seconds=10.0, pause=0.01)
    response = await set_pin(running)
    assert isinstance(response, core.Refused)
    assert response.code == codes.OVERLOADED
    cloud.released.set()
    assert all(isinstance(each, core.Done) for each in await asyncio.gather(*held))


async def test_a_read_that_began_before_a_change_does_not_undo_it(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await started(upstream_world, cloud)
    assert running.shard.upstream is not None
    cloud.profile.read_gate, reads = asyncio.Event(), cloud.profile.reads
    read = asyncio.create_task(running.shard.upstream.profile.mirror.run_once())
    await polling.until(lambda: cloud.profile.reads > reads, seconds=10.0, pause=0.01)
    gate, cloud.profile.read_gate = cloud.profile.read_gate, None
    assert isinstance(await change(running, about="new"), core.Done)
    gate.set()
    assert not await read
    assert (await stored(upstream_world))[0] == "new"


async def test_a_change_for_a_number_of_the_network_is_refused(world: World) -> None:
    running = await world.start()
    for response in (await change(running, about="new"), await set_pin(running)):
        assert isinstance(response, core.Refused)
        assert response.code == codes.NOT_PRIMARY_COREAPP
