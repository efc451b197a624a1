"""`/v1/stickerpacks`."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from tests.webapp.conftest import Served, check_headers, code, errors
from tests.webapp.roles import check_takes_a_token, ordinary
from tidings.storage.business import media, numbers, stickerpacks
from tidings.storage.database import Database
from webapp.api.stickerpacks import service

PATH, ACCOUNT = "/v1/stickerpacks", "15550000000"
META = {"version": "2.57.2", "api_status": "stable"}
PACK = {"publisher": "Tidings Ltd.", "name": "Party 👨‍👩‍👧", "ios_app_store_link": "https://apps.example.com/1"}
IMAGE, ANOTHER = "f043afd0-f0ae-4b9c-ab3d-696fb4c8cd68", "0f6ad6d2-77a3-4a8e-9a4f-6d1a0b3f2c11"
PICTURE, FOREIGN = "3c0d3a52-1a0d-4c53-9b58-2f7d0f0a5e21", "9a1f6c77-52d3-4c1e-8a35-7be0b0f1d2c4"


@pytest.fixture(autouse=True)
async def uploaded(database: Database) -> None:
    """Two stickers and a picture of the number, and a sticker of another one."""
    files = [
        (IMAGE, ACCOUNT, "sticker", "image/webp"),
        (ANOTHER, ACCOUNT, "sticker", "image/webp"),
        (PICTURE, ACCOUNT, "image", "image/png"),
        (FOREIGN, "15550000001", "sticker", "image/webp"),
    ]
    rows = [
        media.MediaRow(id, account, kind, mime_type, 100, "", id, "", created_at=1, used_at=1)
        for id, account, kind, mime_type in files
    ]
    async with database.transaction() as connection:
        await media.add_all(connection, rows)


async def make(api: Served) -> str:
    response = await api.http.post(PATH, json=PACK)
    assert response.status_code == 201, response.text
    check_headers(response)
    payload = response.json()
    assert payload == {"stickerpacks": [{"id": payload["stickerpacks"][0]["id"]}], "meta": META}
    pack_id: str = payload["stickerpacks"][0]["id"]
    assert str(uuid.UUID(pack_id)) == pack_id
    return pack_id


async def add(api: Served, pack_id: str, **fields: Any) -> int:
    response = await api.http.post(f"{PATH}/{pack_id}/stickers", json={"image_data_id": IMAGE} | fields)
    assert response.status_code == 201, response.text
    payload = response.json()
    assert payload == {"stickers": [{"index": payload["stickers"][0]["index"]}], "meta": META}
    return int(payload["stickers"][0]["index"])


async def stickers(api: Served, pack_id: str) -> list[Any]:
    response = await api.http.get(f"{PATH}/{pack_id}/stickers")
    assert response.status_code == 200
    found: list[Any] = response.json()["stickers"]
    return found


async def test_a_pack_is_created_read_changed_and_deleted(api: Served) -> None:
    pack_id = await make(api)
    assert (await api.http.get(PATH)).json() == {"stickerpacks": [{"id": pack_id}], "meta": META}
    expected = {"id": pack_id, "android_app_store_link": ""} | PACK
    assert (await api.http.get(f"{PATH}/{pack_id}")).json() == {"stickerpacks": [expected], "meta": META}
    response = await api.http.patch(f"{PATH}/{pack_id}", json={"name": "Feast", "ios_app_store_link": ""})
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert (await api.http.patch(f"{PATH}/{pack_id}", json={})).status_code == 200
    changed = expected | {"name": "Feast", "ios_app_store_link": ""}
    assert (await api.http.get(f"{PATH}/{pack_id}")).json()["stickerpacks"] == [changed]
    response = await api.http.delete(f"{PATH}/{pack_id}")
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert (await api.http.get(PATH)).json()["stickerpacks"] == []


async def test_stickers_keep_their_index_when_others_are_deleted(api: Served) -> None:
    pack_id = await make(api)
    assert [await add(api, pack_id, emojis=["🎉"]) for _ in range(3)] == [0, 1, 2]
    response = await api.http.delete(f"{PATH}/{pack_id}/stickers/1")
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert [sticker["index"] for sticker in await stickers(api, pack_id)] == [0, 2]
    response = await api.http.patch(f"{PATH}/{pack_id}/stickers/2", json={"emojis": ["😀", "👨‍👩‍👧"]})
    assert (response.status_code, response.json()) == (200, {"meta": META})
    found = await api.http.get(f"{PATH}/{pack_id}/stickers/2")
    entry = {"id": "2", "index": 2, "emojis": ["😀", "👨‍👩‍👧"], "image_data_id": IMAGE}
    assert found.json() == {"stickers": [entry], "meta": META}
    assert await add(api, pack_id) == 3


async def test_stickers_are_deleted_with_their_pack(api: Served) -> None:
    pack_id = await make(api)
    await add(api, pack_id)
    await api.http.delete(f"{PATH}/{pack_id}")
    assert code(await api.http.get(f"{PATH}/{pack_id}/stickers")) == (404, 1006)
    assert code(await api.http.get(f"{PATH}/{pack_id}/stickers/0")) == (404, 1006)


async def test_the_whatsapp_namespace_has_no_packs(api: Served) -> None:
    await make(api)
    assert (await api.http.get(PATH, params={"namespace": "whatsapp"})).json() == {"stickerpacks": [], "meta": META}
    assert code(await api.http.get(PATH, params={"namespace": "another"})) == (400, 1009)


async def test_the_numbers_of_packs_and_stickers_are_limited(api: Served, database: Database) -> None:
    async with database.transaction() as connection:
        for _ in range(service.MAX_PACKS - 1):
            pack = stickerpacks.Pack(str(uuid.uuid4()), api.settings.account, "Tidings", "Many")
            await stickerpacks.add_pack(connection, pack, limit=service.MAX_PACKS)
    pack_id = await make(api)
    assert code(await api.http.post(PATH, json=PACK)) == (400, 1009)
    responses = await asyncio.gather(
        *(
            api.http.post(f"{PATH}/{pack_id}/stickers", json={"image_data_id": IMAGE})
            for _ in range(service.MAX_STICKERS + 3)
        )
    )
    assert sorted(response.status_code for response in responses) == [201] * service.MAX_STICKERS + [400] * 3


@pytest.mark.parametrize(
    ("change", "expected", "details"),
    [
        ({"publisher": None}, 1009, "publisher: "),
        ({"name": ""}, 1009, "name: "),
        ({"name": "x" * 129}, 1009, "name: "),
        ({"name": "a\nb"}, 1009, "name: should have no control"),
        ({"ios_app_store_link": "apps.example.com"}, 1009, "ios_app_store_link: should begin with http"),
        ({"android_app_store_link": "https://x/" + "x" * 1024}, 1009, "android_app_store_link: "),
    ],
)
async def test_an_invalid_pack_is_refused(api: Served, change: dict[str, Any], expected: int, details: str) -> None:
    response = await api.http.post(PATH, json=PACK | change)
    assert code(response) == (400, expected)
    assert errors(response)[0]["details"].startswith(details)
    for field in ("publisher", "name"):
        missing = await api.http.post(PATH, json={key: value for key, value in PACK.items() if key != field})
        assert code(missing) == (400, 1008)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, 1008),
        ({"image_data_id": ""}, 1009),
        ({"image_data_id": "x" * 129}, 1009),
        ({"image_data_id": IMAGE, "emojis": "🎉"}, 1009),
        ({"image_data_id": IMAGE, "emojis": ["a", "b", "c", "d"]}, 1009),
        ({"image_data_id": IMAGE, "emojis": [""]}, 1009),
        ({"image_data_id": IMAGE, "emojis": ["\u0001" * 16] * 3}, 1009),
        ([], 1009),
    ],
)
async def test_an_invalid_sticker_is_refused(api: Served, content: Any, expected: int) -> None:
    pack_id = await make(api)
    assert code(await api.http.post(f"{PATH}/{pack_id}/stickers", json=content)) == (400, expected)
    assert await stickers(api, pack_id) == []


@pytest.mark.parametrize(
    ("image", "expected", "words"),
    [
        (str(uuid.UUID(int=7)), (404, 1006), "image_data_id: there is no media with this id"),
        ("nothing", (404, 1006), "image_data_id: there is no media with this id"),
        (FOREIGN, (404, 1006), "image_data_id: there is no media with this id"),
        (PICTURE, (400, 1009), "image_data_id: is image/png, should be image/webp"),
    ],
)
async def test_the_file_of_a_sticker_must_be_an_uploaded_sticker(
    api: Served, image: str, expected: tuple[int, int], words: str
) -> None:
    pack_id = await make(api)
    await add(api, pack_id)
    for method, path in (("POST", "stickers"), ("PATCH", "stickers/0")):
        response = await api.http.request(method, f"{PATH}/{pack_id}/{path}", json={"image_data_id": image})
        assert (code(response), errors(response)[0]["details"]) == (expected, words)
    assert [sticker["image_data_id"] for sticker in await stickers(api, pack_id)] == [IMAGE]


async def test_the_file_of_a_new_sticker_counts_as_used(api: Served, database: Database) -> None:
    await add(api, await make(api))
    async with database.reading() as connection:
        row = await media.find(connection, ACCOUNT, IMAGE)
    assert row is not None
    assert row.used_at > 1


@pytest.mark.parametrize("pack_id", ["nothing", "ü", "x" * 300, "%00", "..."])
async def test_unknown_packs_and_stickers_get_404(api: Served, pack_id: str) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        assert code(await api.http.request(method, f"{PATH}/{pack_id}", json={"name": "x"})) == (404, 1006)
    for method in ("GET", "POST"):
        response = await api.http.request(method, f"{PATH}/{pack_id}/stickers", json={"image_data_id": "x"})
        assert code(response) == (404, 1006)
    good = await make(api)
    for index in ("0", "-1", "one", "9" * 30, "²"):
        for method in ("GET", "PATCH", "DELETE"):
            response = await api.http.request(method, f"{PATH}/{good}/stickers/{index}", json={})
            assert code(response) == (404, 1006)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", ""),
        ("GET", "/x"),
        ("PATCH", "/x"),
        ("DELETE", "/x"),
        ("GET", "/x/stickers"),
        ("POST", "/x/stickers"),
        ("GET", "/x/stickers/0"),
        ("PATCH", "/x/stickers/0"),
        ("DELETE", "/x/stickers/0"),
    ],
)
async def test_pack_endpoints_accept_the_token_of_any_user(api: Served, method: str, path: str) -> None:
    await check_takes_a_token(api, method, PATH + path)
    response = await api.http.request(
        method, PATH + path, headers=await ordinary(api), json=PACK | {"image_data_id": "x"}
    )
    assert response.status_code in (200, 201, 404)


async def test_a_sticker_for_a_concurrently_deleted_pack_is_refused(
    api: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_id, add_sticker = await make(api), stickerpacks.add_sticker

    async def late(connection: Any, pack: Any, *given: Any, **named: Any) -> int | None:
        # As by another Webapp between the look-up of the pack and this transaction.
        await stickerpacks.delete_pack(connection, pack.account, pack.id)
        return await add_sticker(connection, pack, *given, **named)

    monkeypatch.setattr(stickerpacks, "add_sticker", late)
    response = await api.http.post(f"{PATH}/{pack_id}/stickers", json={"image_data_id": IMAGE})
    async with database.reading() as connection:
        left = await stickerpacks.list_stickers(connection, pack_id)
    assert (response.status_code, list(left)) == (404, [])


async def test_a_change_of_a_concurrently_deleted_sticker_gets_404(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_id, change_sticker = await make(api), stickerpacks.change_sticker
    await add(api, pack_id)

    async def late(connection: Any, *given: Any) -> Any:
        await stickerpacks.delete_sticker(connection, pack_id, 0)
        return await change_sticker(connection, *given)

    monkeypatch.setattr(stickerpacks, "change_sticker", late)
    assert code(await api.http.patch(f"{PATH}/{pack_id}/stickers/0", json={"emojis": []})) == (404, 1006)


async def test_concurrent_changes_of_different_fields_of_a_sticker_are_both_kept(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_id, find_sticker = await make(api), stickerpacks.find_sticker
    await add(api, pack_id)
    sticker, others = f"{PATH}/{pack_id}/stickers/0", list[asyncio.Task[Any]]()

    async def slow(*given: Any) -> Any:
        found = await find_sticker(*given)
        if not others:
            others.append(asyncio.create_task(api.http.patch(sticker, json={"image_data_id": ANOTHER})))
            # It ends now, unless it waits for this one.
            await asyncio.wait(others, timeout=1)
        return found

    monkeypatch.setattr(stickerpacks, "find_sticker", slow)
    responses = [await api.http.patch(sticker, json={"emojis": ["😀"]}), await others[0]]
    assert [response.status_code for response in responses] == [200, 200]
    (found,) = await stickers(api, pack_id)
    assert (found["emojis"], found["image_data_id"]) == (["😀"], ANOTHER)


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_concurrent_requests_do_not_exceed_the_limit_of_packs(
    api: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_pack, others = stickerpacks.add_pack, list[asyncio.Task[Any]]()
    monkeypatch.setattr(service, "MAX_PACKS", 1)
    async with database.transaction() as connection:
        await numbers.add_first(connection, api.settings.account)

    class Slow:
        def __init__(self, connection: Any) -> None:
            self.connection = connection

        async def execute(self, *given: Any) -> Any:
            result = await self.connection.execute(*given)
            if not others and "count(" in str(given[0]):
                others.append(asyncio.create_task(api.http.post(PATH, json=PACK)))
                # It ends now, unless it waits for this one.
                await asyncio.wait(others, timeout=1)
            return result

    async def slow(connection: Any, pack: Any, *, limit: int) -> None:
        await add_pack(connection if others else Slow(connection), pack, limit=limit)  # type: ignore[arg-type]

    monkeypatch.setattr(stickerpacks, "add_pack", slow)
    responses = [await api.http.post(PATH, json=PACK), await others[0]]
    assert sorted(response.status_code for response in responses) == [201, 400]
