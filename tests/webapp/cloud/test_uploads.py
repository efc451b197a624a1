"""Resumable uploads of the Cloud API, and the handles that templates and the profile take."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from harness import polling
from tests.manual_clock import ManualClock
from tests.media_samples import PDF, PNG
from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, details, error
from tests.webapp.cloud.test_numbers import OTHER_APP, OTHER_NUMBER, OTHER_WABA, check_beyond
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_numbers import SECOND, add_number, second
from tidings.objects.directory import DirectoryStore
from tidings.storage.business import cloud_uploads
from tidings.storage.business.cloud_uploads import CloudUpload, CloudUploadPart
from tidings.storage.database import Database
from webapp.api.cloud import upload_sessions

START = f"/v25.0/{APP}/uploads"
PROFILE = f"/v25.0/{NUMBER}/whatsapp_business_profile"
TEMPLATES = f"/v25.0/{WABA}/message_templates"


async def start(cloud: Cloud, content: bytes = PNG, kind: str = "image/png", **fields: Any) -> httpx.Response:
    given = {"file_name": "a.png", "file_length": len(content), "file_type": kind, **fields}
    return await cloud.http.post(START, params={name: value for name, value in given.items() if value is not ...})


async def add(cloud: Cloud, session: str, offset: int | str, content: bytes, **headers: str) -> httpx.Response:
    return await cloud.http.post(f"/v25.0/{session}", content=content, headers={"file_offset": str(offset), **headers})


async def handle_of(cloud: Cloud, content: bytes = PNG, kind: str = "image/png") -> str:
    session = (await start(cloud, content, kind)).json()["id"]
    response = await add(cloud, session, 0, content)
    assert response.status_code == 200, response.text
    return str(response.json()["h"])


def files(cloud: Cloud) -> int:
    return sum(len(path.name) > 30 for path in cloud.served.settings.media_dir.iterdir())


async def test_a_file_is_uploaded_in_one_request(cloud: Cloud) -> None:
    response = await start(cloud)
    session = response.json()["id"]
    assert response.text == f'{{"id":"{session}"}}'
    assert session.startswith("upload:")
    shown = await cloud.http.get(f"/v25.0/{session}")
    assert shown.text == f'{{"id":"{session}","file_offset":0}}'
    token = cloud.http.headers["Authorization"].removeprefix("Bearer ")
    done = await add(cloud, session, 0, PNG, Authorization=f"OAuth {token}")
    handle = done.json()["h"]
    assert list(done.json()) == ["h"]
    assert handle.startswith("4::" + base64.b64encode(b"image/png").decode() + ":")
    assert (await cloud.http.get(f"/{session}")).json()["file_offset"] == len(PNG)
    # A client that did not get the response repeats the request.
    assert (await add(cloud, session, len(PNG), b"")).json() == {"h": handle}
    assert await asyncio.to_thread(files, cloud) == 1


async def test_parts_may_come_through_several_webapps(serve: Serve, cloud: Cloud) -> None:
    served = await serve(cloud_api=True)
    served.http.headers["Authorization"] = cloud.http.headers["Authorization"]
    webapps = (cloud, Cloud(served, served.http))
    content = PDF + bytes(range(256)) * 40
    session = (await start(cloud, content, "application/pdf")).json()["id"]
    offset = 0
    for turn, size in enumerate((3, 1_000, 5_000)):
        response = await add(webapps[turn % 2], session, offset, content[offset : offset + size])
        offset += size
        assert response.json() == {"id": session, "file_offset": offset}
    last = await add(webapps[1], session, offset, content[offset:])
    assert last.json()["h"].startswith("4::")
    (name,) = [path for path in cloud.served.settings.media_dir.iterdir() if len(path.name) > 30]
    assert await asyncio.to_thread(name.read_bytes) == content


async def test_the_bytes_before_a_lost_connection_are_kept(serve: Serve, coreapp: FakeCoreapp) -> None:
    served = await serve(cloud_api=True, over_socket=True)
    await served.log_in()
    cloud, content = Cloud(served, served.http), PDF + bytes(range(256)) * 2_000
    session = (await start(cloud, content, "application/pdf")).json()["id"]
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    token = served.http.headers["Authorization"]
    head = (
        f"POST /v25.0/{session} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {token}\r\nfile_offset: 0\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content[:300_000])
    await writer.drain()
    await polling.until(lambda: any(path.suffix == ".part" for path in served.settings.media_dir.iterdir()))
    writer.close()

    async def kept() -> int:
        return int((await cloud.http.get(f"/{session}")).json()["file_offset"])

    async def is_kept() -> bool:
        return await kept() > 0

    await polling.until(is_kept)
    offset = await kept()
    assert 262_144 <= offset <= 300_000
    assert (await add(cloud, session, offset, content[offset:])).json()["h"].startswith("4::")
    (path,) = [path for path in served.settings.media_dir.iterdir() if len(path.name) > 30]
    assert await asyncio.to_thread(path.read_bytes) == content


@pytest.mark.parametrize(
    ("changed", "message", "reason"),
    [
        ({"file_length": ...}, "(#100) The parameter file_length is required.", None),
        ({"file_type": ...}, "(#100) The parameter file_type is required.", None),
        ({"file_type": "image/gif"}, "(#100) Param file_type must be one of {APPLICATION/PDF, ", None),
        ({"file_length": 0}, None, "file_length: should be a number of bytes from 1 to 5242880 for image/png"),
        ({"file_length": "-1"}, None, "file_length: should be a number of bytes from 1 to 5242880 for image/png"),
        ({"file_length": 5_242_881}, None, "file_length: should be a number of bytes from 1 to 5242880 for image/png"),
        ({"file_name": "x" * 256}, None, "file_name: should have at most 255 characters"),
    ],
)
async def test_an_unusable_announcement_is_refused(
    cloud: Cloud, changed: dict[str, Any], message: str | None, reason: str | None
) -> None:
    response = await start(cloud, **changed)
    assert error(response)[:2] == (400, 100)
    if message is not None:
        assert error(response)[2].startswith(message)
    if reason is not None:
        assert details(response) == reason


async def test_offsets_must_follow_each_other(cloud: Cloud) -> None:
    session = (await start(cloud)).json()["id"]
    assert (await add(cloud, session, 0, PNG[:5])).json()["file_offset"] == 5
    for offset in (0, 4, 6):
        refused = await add(cloud, session, offset, PNG[5:])
        assert details(refused) == f"file_offset: is {offset}, the next byte of this upload is 5"
    assert details(await add(cloud, session, "5x", PNG[5:])) == "file_offset: should be a number of bytes"
    none = await cloud.http.post(f"/{session}", content=PNG[5:])
    assert error(none)[2] == "(#100) The parameter file_offset is required."
    assert details(await add(cloud, session, 5, b"")) == "the body is empty"
    beyond = await add(cloud, session, 5, PNG)
    assert details(beyond) == f"the body is over the {len(PNG) - 5} bytes that file_length leaves"
    assert (await cloud.http.get(f"/{session}")).json()["file_offset"] == 5
    assert (await add(cloud, session, 5, PNG[5:])).json()["h"]


async def test_a_file_of_another_type_ends_its_session_and_leaves_nothing(cloud: Cloud) -> None:
    session = (await start(cloud, b"no picture")).json()["id"]
    refused = await add(cloud, session, 0, b"no picture")
    assert details(refused) == "body: the file is not of the type image/png"
    check_beyond(await cloud.http.get(f"/{session}"), session)
    assert await asyncio.to_thread(files, cloud) == 0


async def test_sessions_end_after_24_hours_and_a_number_has_at_most_100(serve: Serve, coreapp: FakeCoreapp) -> None:
    clock = ManualClock(1_700_000_000)
    served = await serve(clock=clock, cloud_api=True)
    await served.log_in()
    cloud = Cloud(served, served.http)
    sessions = [(await start(cloud)).json()["id"] for _ in range(100)]
    refused = await start(cloud)
    assert details(refused) == "100 uploads are unfinished; each ends 24 hours after its start"
    assert (await add(cloud, sessions[0], 0, PNG)).status_code == 200
    assert (await start(cloud)).status_code == 200
    await add(cloud, sessions[1], 0, PNG[:9])
    clock.advance(86_400)
    await served.log_in()
    check_beyond(await cloud.http.get(f"/{sessions[1]}"), sessions[1])
    response = await cloud.http.post(f"/{sessions[1]}", content=PNG[9:], headers={"file_offset": "9"})
    check_beyond(response, sessions[1])
    assert (await start(cloud)).status_code == 200
    # The finished file is left, those of parts are not.
    assert await asyncio.to_thread(files, cloud) == 1


async def test_a_file_comes_in_at_most_100_requests(cloud: Cloud) -> None:
    content = PDF + bytes(200)
    session = (await start(cloud, content, "application/pdf")).json()["id"]
    for offset in range(100):
        assert (await add(cloud, session, offset, content[offset : offset + 1])).status_code == 200
    refused = await add(cloud, session, 100, content[100:])
    assert details(refused) == "the file came in 100 requests and is not complete; start a new upload"


async def test_sessions_and_handles_belong_to_one_number(cloud: Cloud, database: Database) -> None:
    headers = await second(cloud.served, database)
    check_beyond(await cloud.http.post(f"/{OTHER_APP}/uploads", params={"file_length": 1}), OTHER_APP)
    session, handle = (await start(cloud)).json()["id"], await handle_of(cloud)
    check_beyond(await cloud.http.get(f"/{session}", headers=headers), session)
    response = await cloud.http.post(f"/{session}", content=PNG, headers={**headers, "file_offset": "0"})
    check_beyond(response, session)
    path = f"/{OTHER_NUMBER}/whatsapp_business_profile"
    body = {"messaging_product": "whatsapp", "profile_picture_handle": handle}
    assert error(await cloud.http.post(path, json=body, headers=headers))[:2] == (400, 100)
    refused = await cloud.http.post(f"/{OTHER_WABA}/message_templates", json=template(handle), headers=headers)
    assert refused.json()["error"]["error_subcode"] == 2388047


def template(handle: Any, kind: str = "IMAGE") -> dict[str, Any]:
    header = {"type": "HEADER", "format": kind, "example": {"header_handle": handle}}
    return {
        "name": "sample",
        "language": "en_US",
        "category": "MARKETING",
        "components": [header, {"type": "BODY", "text": "Hello"}],
    }


async def test_a_template_takes_the_handle_of_its_sample(cloud: Cloud) -> None:
    handle = await handle_of(cloud)
    made = await cloud.http.post(TEMPLATES, json=template([handle]))
    assert made.status_code == 200, made.text
    shown = (await cloud.http.get(f"/{made.json()['id']}")).json()
    assert shown["components"][0] == {"type": "HEADER", "format": "IMAGE", "example": {"header_handle": [handle]}}
    wrong = [template(["4::x"]), template(handle[:-3] + "AAA"), template([7]), template([handle], "DOCUMENT")]
    for body in wrong:
        refused = await cloud.http.post(TEMPLATES, json={**body, "name": "other"})
        assert error(refused) == (400, 100, "Invalid parameter")
        assert refused.json()["error"]["error_subcode"] == 2388047
        assert "header_handle is " in refused.json()["error"]["error_user_msg"]
    edited = {"components": template(["4::x"])["components"]}
    assert error(await cloud.http.post(f"/{made.json()['id']}", json=edited))[:2] == (400, 100)


async def test_a_profile_picture_is_set_by_handle_and_shown_by_its_url(cloud: Cloud) -> None:
    assert "profile_picture_url" not in (await cloud.http.get(PROFILE)).json()["data"][0]
    body = {
        "messaging_product": "whatsapp",
        "about": "Parcels",
        "profile_picture_handle": await handle_of(cloud),
        "websites": ["https://example.com"],
    }
    assert (await cloud.http.post(PROFILE, json=body)).text == '{"success":true}'
    (shown,) = (await cloud.http.get(PROFILE)).json()["data"]
    assert list(shown) == ["about", "profile_picture_url", "websites", "vertical", "messaging_product"]
    assert (await cloud.http.get("/v1/settings/profile/photo")).content == PNG
    url = shown["profile_picture_url"]
    assert url.startswith(f"http://127.0.0.1:0/whatsapp_business/pictures/?id={NUMBER}&kind=profile&hash=")
    del cloud.http.headers["Authorization"]
    picture = await cloud.http.get(url)
    assert (picture.status_code, picture.content, picture.headers["content-type"]) == (200, PNG, "image/png")
    for changed in (url[:-2], url.replace(NUMBER, OTHER_NUMBER), url.replace("profile", "qr"), url.partition("?")[0]):
        assert error(await cloud.http.get(changed))[0] == 404


@pytest.mark.parametrize(
    ("content", "kind"), [(PDF, "application/pdf"), (None, "")], ids=["document", "handle of no upload"]
)
async def test_a_profile_picture_is_a_picture_of_the_account(cloud: Cloud, content: bytes | None, kind: str) -> None:
    handle = await handle_of(cloud, content, kind) if content is not None else "4::aW1hZ2UvcG5n:AAAAAAAAAAAAAAAAAAAAAA"
    body = {"messaging_product": "whatsapp", "about": "changed", "profile_picture_handle": handle}
    refused = await cloud.http.post(PROFILE, json=body)
    assert details(refused).startswith("profile_picture_handle: ")
    (shown,) = (await cloud.http.get(PROFILE)).json()["data"]
    assert "about" not in shown


async def test_a_file_whose_bytes_are_all_there_is_finished_once(cloud: Cloud, database: Database) -> None:
    store = DirectoryStore(cloud.served.settings.media_dir)

    async def chunks() -> AsyncIterator[bytes]:
        yield PNG

    stored = await store.write(chunks(), limit=len(PNG))
    now = int(time.time() * 1000)
    async with database.transaction() as connection:
        await cloud_uploads.add(connection, CloudUpload("full", "15550000000", "image/png", len(PNG), 0, now))
        part = CloudUploadPart("full", 0, "15550000000", len(PNG), stored.name)
        assert await cloud_uploads.append(connection, part)
    responses = await asyncio.gather(*(add(cloud, "upload:full", len(PNG), b"") for _ in range(4)))
    assert [response.status_code for response in responses] == [200] * 4
    assert len({response.json()["h"] for response in responses}) == 1
    assert await asyncio.to_thread(files, cloud) == 1


async def test_two_requests_with_the_same_bytes_make_one_file(cloud: Cloud, database: Database) -> None:
    session = (await start(cloud)).json()["id"]
    both = await asyncio.gather(*(add(cloud, session, 0, PNG) for _ in range(2)))
    codes = sorted(response.status_code for response in both)
    assert codes in ([200, 200], [200, 400])
    handles = {response.json()["h"] for response in both if response.status_code == 200}
    assert len(handles) == 1
    assert await asyncio.to_thread(files, cloud) == 1
    async with database.reading() as connection:
        assert await cloud_uploads.list_parts(connection, session.removeprefix("upload:")) == []


async def test_any_token_of_an_open_facade_uploads_for_the_number_of_the_app(
    serve: Serve, database: Database, coreapp: FakeCoreapp
) -> None:
    served = await serve(cloud_api=True, cloud_open=True)
    await add_number(database)
    await served.parts.numbers.poll()
    headers = {"Authorization": "Bearer anything"}
    for app, account in ((APP, "15550000000"), (OTHER_APP, SECOND)):
        given = {"file_length": len(PNG), "file_type": "image/png"}
        session = (await served.http.post(f"/{app}/uploads", params=given, headers=headers)).json()["id"]
        assert (await served.http.get(f"/{session}", headers=headers)).json() == {"id": session, "file_offset": 0}
        done = await served.http.post(f"/{session}", content=PNG, headers={**headers, "file_offset": "0"})
        assert list(done.json()) == ["h"]
        async with database.reading() as connection:
            found = await cloud_uploads.find(connection, account, session.removeprefix("upload:"), 0)
        assert found is not None
    check_beyond(await served.http.get("/upload:x", headers=headers), "upload:x")


async def test_the_last_session_is_started_when_the_outcome_of_the_commit_is_unknown(
    cloud: Cloud, lost_commit: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_sessions, "MAX_OPEN", 1)
    lost_commit.append(True)
    response = await start(cloud)
    assert not lost_commit
    assert response.status_code == 200, response.text
