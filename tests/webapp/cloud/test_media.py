"""Files of the Cloud API: upload as a form, a URL for five minutes, ranges and deletion."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.manual_clock import ManualClock
from tests.media_samples import PDF, PNG
from tests.webapp.cloud.conftest import NUMBER, Cloud, check_headers, details, error, untraced
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import LINK_KEY, FakeCoreapp
from tidings.aio.clock import SystemClock
from tidings.keys.media_links import MediaLinks
from tidings.wire import core
from tidings.wire.cloud import media_ids

PATH = f"/v25.0/{NUMBER}/media"
MIB = 1024 * 1024


async def upload(cloud: Cloud, content: bytes = PNG, kind: str = "image/png", **fields: str) -> httpx.Response:
    return await cloud.http.post(
        PATH, data={"messaging_product": "whatsapp", **fields}, files={"file": ("a.png", content, kind)}
    )


async def test_a_file_is_uploaded_described_downloaded_sent_and_deleted(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    response = await upload(cloud)
    check_headers(response)
    media_id = response.json()["id"]
    assert response.text == f'{{"id":"{media_id}"}}'
    assert media_id.isdigit()

    described = await cloud.http.get(f"/v25.0/{media_id}?phone_number_id={NUMBER}")
    check_headers(described)
    url, digest = described.json()["url"], hashlib.sha256(PNG).hexdigest()
    written = url.replace("/", "\\/")
    assert described.text == (
        f'{{"url":"{written}","mime_type":"image\\/png","sha256":"{digest}","file_size":{len(PNG)},"id":"{media_id}",'
        '"messaging_product":"whatsapp"}'
    )
    assert url.startswith("http://127.0.0.1:0/whatsapp_business/attachments/?mid=" + media_id)

    file = await cloud.http.get(url)
    assert (file.status_code, file.content, file.headers["content-type"]) == (200, PNG, "image/png")
    assert file.headers.get_list("cache-control") == ["no-store"]

    assert (await cloud.send(type="image", text=..., image={"id": media_id, "caption": "c"})).status_code == 200
    [request] = coreapp.requested(core.AcceptMessage)
    content = json.loads(request.content)
    v1 = await cloud.http.get(f"/v1/media/{content['image']['id']}")
    assert v1.content == PNG
    assert request.has_media

    deleted = await cloud.http.delete(f"/v25.0/{media_id}")
    assert (deleted.status_code, deleted.text) == (200, '{"success":true}')
    for gone in (await cloud.http.get(f"/v25.0/{media_id}"), await cloud.http.delete(f"/v25.0/{media_id}")):
        assert error(gone)[:2] == (400, 100)
        assert gone.json()["error"]["error_subcode"] == 33
    assert error(await cloud.http.get(url))[0] == 404


@pytest.mark.parametrize(
    ("header", "status", "content", "shown"),
    [
        ("bytes=0-3", 206, PNG[:4], f"bytes 0-3/{len(PNG)}"),
        ("bytes=4-", 206, PNG[4:], f"bytes 4-{len(PNG) - 1}/{len(PNG)}"),
        ("bytes=-5", 206, PNG[-5:], f"bytes {len(PNG) - 5}-{len(PNG) - 1}/{len(PNG)}"),
        ("bytes=2-99999999", 206, PNG[2:], f"bytes 2-{len(PNG) - 1}/{len(PNG)}"),
        ("bytes=0-1,3-4", 200, PNG, None),
        ("bytes=5-2", 200, PNG, None),
        ("lines=1-2", 200, PNG, None),
    ],
)
async def test_a_range_is_served(cloud: Cloud, header: str, status: int, content: bytes, shown: str | None) -> None:
    media_id = (await upload(cloud)).json()["id"]
    url = (await cloud.http.get(f"/{media_id}")).json()["url"]
    response = await cloud.http.get(url, headers={"Range": header})
    assert (response.status_code, response.content) == (status, content)
    assert response.headers.get("content-range") == shown
    assert response.headers["content-length"] == str(len(content))


async def test_a_range_beyond_the_end_is_416_and_one_of_a_large_file_is_exact(cloud: Cloud) -> None:
    content = b"%PDF-1.4\n" + bytes(range(256)) * 12_000
    media_id = (await upload(cloud, content, "application/pdf")).json()["id"]
    url = (await cloud.http.get(f"/{media_id}")).json()["url"]
    part = await cloud.http.get(url, headers={"Range": "bytes=2000000-2000009"})
    assert (part.status_code, part.content) == (206, content[2_000_000:2_000_010])
    beyond = await cloud.http.get(url, headers={"Range": f"bytes={len(content)}-"})
    assert error(beyond)[0] == 416
    assert beyond.headers["content-range"] == f"bytes */{len(content)}"


async def test_a_url_is_valid_for_five_minutes_with_a_token(serve: Serve, coreapp: FakeCoreapp) -> None:
    clock = ManualClock(1_700_000_000)
    served = await serve(clock=clock, cloud_api=True)
    await served.log_in()
    cloud = Cloud(served, served.http)
    media_id = (await upload(cloud)).json()["id"]
    url = (await cloud.http.get(f"/{media_id}")).json()["url"]
    clock.advance(299)
    assert (await cloud.http.get(url)).status_code == 200
    for changed in (url.replace("ext=17", "ext=18"), url[:-2] + "xx", url.partition("?")[0]):
        assert error(await cloud.http.get(changed))[0] == 404
    clock.advance(1)
    assert error(await cloud.http.get(url))[0] == 404
    url = (await cloud.http.get(f"/{media_id}")).json()["url"]
    token = cloud.http.headers.pop("Authorization")
    assert error(await cloud.http.get(url))[0] == 404
    assert error(await cloud.http.get(url, headers={"Authorization": token + "x"}))[0] == 404


async def test_an_uploaded_file_expires_after_30_days_whatever_its_use(serve: Serve, coreapp: FakeCoreapp) -> None:
    clock = ManualClock(1_700_000_000)
    served = await serve(clock=clock, cloud_api=True)
    await served.log_in()
    cloud = Cloud(served, served.http)
    media_id = (await upload(cloud)).json()["id"]
    of_v1 = await cloud.http.post("/v1/media", content=PNG, headers={"Content-Type": "image/png"})
    clock.advance(2_591_990)
    await served.log_in()
    url = (await cloud.http.get(f"/{media_id}")).json()["url"]
    assert (await cloud.http.get(url)).status_code == 200
    assert (await cloud.send(type="image", text=..., image={"id": media_id})).status_code == 200
    clock.advance(11)
    for gone in (await cloud.http.get(f"/{media_id}"), await cloud.http.delete(f"/{media_id}")):
        assert error(gone)[:2] == (400, 100)
        assert gone.json()["error"]["error_subcode"] == 33
    assert error(await cloud.http.get(url))[0] == 404
    refused = await cloud.send(type="image", text=..., image={"id": media_id})
    assert details(refused) == "image.id: there is no media with this id"
    # A file that was uploaded over v1 has no such end.
    kept = media_ids.encode(of_v1.json()["media"][0]["id"])
    assert (await cloud.http.get(f"/{kept}")).status_code == 200


@pytest.mark.parametrize(
    ("files", "data", "message"),
    [
        (None, {"messaging_product": "whatsapp"}, "(#100) The parameter file is required."),
        ({"other": ("a.png", PNG, "image/png")}, {}, "(#100) The parameter file is required."),
        ({"file": ("a.png", PNG, "image/png")}, {}, "(#100) The parameter messaging_product is required."),
        ({"file": ("a.exe", b"MZ", "application/x-msdownload")}, {"messaging_product": "whatsapp"}, None),
        ({"file": ("a.png", b"no png", "image/png")}, {"messaging_product": "whatsapp"}, "(#100) Invalid parameter"),
        ({"file": ("a.png", b"", "image/png")}, {"messaging_product": "whatsapp"}, "(#100) Invalid parameter"),
        (
            {"file": ("a.png", PNG + b"\0" * 6 * MIB, "image/png")},
            {"messaging_product": "whatsapp"},
            "(#100) Invalid parameter",
        ),
        (
            {"file": ("a.png", PNG, "image/png")},
            {"messaging_product": "whatsapp", "x": "y" * 2000},
            "(#100) Invalid parameter",
        ),
    ],
    ids=["no form", "no file", "no product", "type", "content", "empty", "too large", "long field"],
)
async def test_an_unusable_upload_is_refused_and_leaves_no_file(
    cloud: Cloud, files: Any, data: dict[str, str], message: str | None
) -> None:
    response = await cloud.http.post(PATH, data=data, files=files)
    status, code, words = error(response)
    assert (status, code) == (400, 100)
    if message is None:
        assert words.startswith("(#100) Param file must be a file with one of the following types: audio/aac, ")
        assert words.endswith("Received file of type 'application/x-msdownload'.")
    else:
        assert words == message
    left = await asyncio.to_thread(lambda: list(cloud.served.settings.media_dir.iterdir()))
    assert [path.name for path in left if len(path.name) > 30] == []


async def test_fields_may_follow_the_file_and_the_type_may_be_a_field(cloud: Cloud) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n' + PDF + b"\r\n"
        b'--x\r\nContent-Disposition: form-data; name="messaging_product"\r\n\r\nwhatsapp\r\n--x--\r\n'
    )

    async def pieces() -> Any:
        for position in range(0, len(body), 7):
            yield body[position : position + 7]

    response = await cloud.http.post(
        PATH, content=pieces(), headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    media_id = response.json()["id"]
    described = (await cloud.http.get(f"/{media_id}")).json()
    assert (described["mime_type"], described["file_size"]) == ("application/pdf", len(PDF))


async def test_a_url_that_a_coreapp_made_for_a_webhook_is_valid(cloud: Cloud) -> None:
    media_id = (await upload(cloud)).json()["id"]
    links = MediaLinks(LINK_KEY, SystemClock())
    url = links.url("http://127.0.0.1:0", "15550000000", media_id)
    assert (await cloud.http.get(url)).content == PNG
    assert error(await cloud.http.get(links.url("", "15550000001", media_id)))[0] == 404


async def test_a_file_is_not_found_under_the_id_of_another_number(cloud: Cloud) -> None:
    media_id = (await upload(cloud)).json()["id"]
    for method in ("GET", "DELETE"):
        response = await cloud.http.request(method, f"/{media_id}?phone_number_id=123")
        assert response.json()["error"]["error_subcode"] == 33
    unknown = await cloud.http.get("/v25.0/1152921504606846977")
    assert b"Unsupported get request. Object with ID '1152921504606846977' does not exist" in untraced(unknown)
    refused = await cloud.send(type="image", text=..., image={"id": "1152921504606846977"})
    assert details(refused) == "image.id: there is no media with this id"


async def test_the_fields_of_a_file_can_be_chosen(cloud: Cloud) -> None:
    media_id = (await upload(cloud)).json()["id"]
    chosen = await cloud.http.get(f"/{media_id}", params={"fields": "mime_type,file_size"})
    assert chosen.json() == {"mime_type": "image/png", "file_size": len(PNG), "id": media_id}
    unknown = await cloud.http.get(f"/{media_id}", params={"fields": "bogus"})
    assert error(unknown)[:2] == (400, 100)
    assert "(bogus)" in unknown.json()["error"]["message"]
