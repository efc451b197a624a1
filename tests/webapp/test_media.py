"""`/v1/media` over a real socket: stored files, refused files, and no other files left on disk."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from harness import metrics
from tests import media_samples
from tests.coreapp.signals import soon
from tests.media_samples import PNG, SAMPLES
from tests.webapp import raw
from tests.webapp.conftest import Serve, Served, body, check_headers, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.media import kinds
from tidings.storage.business import media
from tidings.storage.database import Database
from webapp.api.media import service, transfer
from webapp.api.media.service import IN_MEMORY, TOUCH_AFTER_MS

PATH = "/v1/media"
ACCOUNT = "15550000000"
MIB = 1024 * 1024


def on_disk(api: Served) -> list[str]:
    return os.listdir(api.settings.media_dir)


async def rows(database: Database) -> list[media.MediaRow]:
    async with database.reading() as connection:
        return list(await media.list_unused(connection, ACCOUNT, 2**62, now=2**62))


async def upload(api: Served, content: Any = PNG, kind: str = "image/png", **headers: str) -> str:
    response = await api.http.post(PATH, content=content, headers={"Content-Type": kind, **headers})
    assert response.status_code == 200, response.text
    [entry] = response.json()["media"]
    return str(entry["id"])


class Events(logging.Handler):
    """Log handler that wakes a test that waits for a log line."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._seen: dict[str, asyncio.Event] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.of(record.getMessage()).set()

    def of(self, message: str) -> asyncio.Event:
        return self._seen.setdefault(message, asyncio.Event())

    async def wait_for(self, message: str) -> None:
        async with asyncio.timeout(30):
            await self.of(message).wait()


@pytest.fixture
def events() -> Iterator[Events]:
    handler = Events()
    logger = logging.getLogger("webapp.api.media")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("kind", SAMPLES)
async def test_a_file_of_each_type_is_returned_as_uploaded(served_api: Served, database: Database, kind: str) -> None:
    response = await served_api.http.post(PATH, content=SAMPLES[kind], headers={"Content-Type": kind})
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"media", "meta"}
    [entry] = response.json()["media"]
    assert str(uuid.UUID(entry["id"])) == entry["id"]
    check_headers(response)
    [row] = await rows(database)
    assert (row.id, row.account, row.kind, row.mime_type, row.size) == (
        entry["id"],
        ACCOUNT,
        kinds.parse(kind).kind,
        kind,
        len(SAMPLES[kind]),
    )
    assert on_disk(served_api) == [row.file]
    found = await served_api.http.get(f"{PATH}/{entry['id']}")
    assert (found.status_code, found.content) == (200, SAMPLES[kind])
    assert found.headers["Content-Type"] == kind
    assert found.headers["Content-Length"] == str(len(SAMPLES[kind]))
    check_headers(found)
    head = await served_api.http.head(f"{PATH}/{entry['id']}")
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(SAMPLES[kind])))


async def test_a_large_file_can_be_uploaded_chunked_or_with_a_length(served_api: Served) -> None:
    content = os.urandom(3 * MIB + 17)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 100_000):
            yield content[at : at + 100_000]

    for sent in (content, chunks()):
        media_id = await upload(served_api, sent, "application/octet-stream")
        assert (await served_api.http.get(f"{PATH}/{media_id}")).content == content


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("media_wrong")])
async def test_an_invalid_upload_is_refused_with_the_reason_and_leaves_no_file(
    served_api: Served, database: Database, case: dict[str, Any]
) -> None:
    content = SAMPLES[case["file"]] if case["file"] else b""
    headers = {} if case["type"] is None else {"Content-Type": case["type"]}
    response = await served_api.http.post(PATH, content=content, headers=headers)
    assert code(response) == (400, case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert on_disk(served_api) == []
    assert await rows(database) == []


async def test_stickers_must_be_512_pixels_square_and_static(served_api: Served) -> None:
    for file, details in (
        (media_samples.webp(512, 511), "body: the sticker is 512 x 511 pixels, not 512 x 512"),
        (media_samples.webp(512, 512, animated=True), "body: the sticker is animated"),
    ):
        response = await served_api.http.post(PATH, content=file, headers={"Content-Type": "image/webp"})
        assert code(response) == (400, 1009)
        assert errors(response)[0]["details"] == details


@pytest.mark.parametrize(
    ("kind", "limit"),
    [("image/png", 5 * MIB), ("image/webp", 100 * 1024), ("audio/mpeg", 16 * MIB), ("video/mp4", 16 * MIB)],
)
async def test_a_file_at_the_size_limit_of_its_kind_is_accepted_and_one_byte_more_is_not(
    served_api: Served, kind: str, limit: int
) -> None:
    whole = SAMPLES[kind] + b"\0" * (limit - len(SAMPLES[kind]))
    await upload(served_api, whole, kind)

    async def chunks() -> AsyncIterator[bytes]:
        yield whole
        yield b"\0"

    before = on_disk(served_api)
    for sent in (whole + b"\0", chunks()):
        response = await served_api.http.post(PATH, content=sent, headers={"Content-Type": kind})
        assert code(response) == (413, 1025)
        assert errors(response)[0]["details"] == f"the body is over the limit of {limit} bytes"
        assert on_disk(served_api) == before


async def test_a_declared_length_over_the_limit_is_refused_before_any_byte(served_api: Served) -> None:
    for length in (str(100 * MIB + 1), "9" * 18):
        headers = {"Content-Type": "application/pdf", "Content-Length": length}
        status, _, payload = await raw.call(served_api, "POST", PATH, headers=headers)
        assert (status, payload["errors"][0]["code"]) == (413, 1025)
    assert on_disk(served_api) == []


async def test_an_aborted_upload_leaves_no_file_and_no_row(
    served_api: Served, database: Database, events: Events
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served_api.port)
    writer.write(head_of(served_api, length=2 * MIB) + b"x" * MIB)
    await writer.drain()
    writer.close()
    await events.wait_for("media.uploaded")
    assert on_disk(served_api) == []
    assert await rows(database) == []


async def test_a_stalled_upload_is_ended(served_api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.received, "__kwdefaults__", {"idle": 0.05, "longest": 60.0})
    part = head_of(served_api, length=2 * MIB) + b"x" * MIB
    status, _, payload = await raw.exchange(served_api.port, part)
    assert (status, payload["errors"][0]["code"]) == (400, 1025)
    assert payload["errors"][0]["details"] == "the body did not arrive in time"
    assert on_disk(served_api) == []


def head_of(api: Served, *, length: int, kind: str = "application/octet-stream") -> bytes:
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: tests\r\nAuthorization: {api.http.headers['Authorization']}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


@contextlib.asynccontextmanager
async def upload_in_progress(api: Served, **headers: str) -> AsyncIterator[None]:
    """Start an upload that completes when the block ends."""
    finish = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield PNG
        await finish.wait()

    before = uploads_in_progress()
    task = asyncio.create_task(upload(api, slow(), **headers))
    await soon(lambda: uploads_in_progress() > before)
    yield
    finish.set()
    await task


def uploads_in_progress() -> float:
    [metric] = service.IN_PROGRESS.collect()
    return float(metric.samples[0].value)


async def test_concurrent_uploads_are_limited(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(over_socket=True, max_uploads=1)
    await api.log_in()
    async with upload_in_progress(api):
        response = await api.http.post(PATH, content=PNG, headers={"Content-Type": "image/png"})
        assert code(response) == (503, 1016)
        assert response.headers["Retry-After"] == "1"
    await upload(api)


async def test_concurrent_downloads_are_limited(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_DOWNLOADS", 1)
    api = await serve(over_socket=True)
    await api.log_in()
    media_id = await upload(api, os.urandom(20 * MIB), "application/octet-stream")
    for _ in range(3):
        assert code(await api.http.get(f"{PATH}/x")) == (404, 1006)
    async with api.http.stream("GET", f"{PATH}/{media_id}") as going:
        assert going.status_code == 200
        assert code(await api.http.get(f"{PATH}/{media_id}")) == (503, 1016)
        await going.aread()
    assert (await api.http.get(f"{PATH}/{media_id}")).status_code == 200


class _Closing:
    """File whose close takes until the test allows it."""

    def __init__(self) -> None:
        self.closing, self.may_close = asyncio.Event(), asyncio.Event()

    async def read(self, size: int) -> bytes:
        return b""

    async def close(self) -> None:
        self.closing.set()
        await self.may_close.wait()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_download_has_its_slot_until_its_file_is_closed(is_cancelled: bool) -> None:
    slots, file = transfer.TransferSlots("downloads", 1), _Closing()
    slots.take()
    response = transfer.FileResponse(file, 1, "text/plain", done=slots.release)

    async def ignore(message: object) -> None:
        """Discard a part of the response."""

    scope = {"type": "http", "state": {"request_id": "1"}}
    serving = asyncio.create_task(response(scope, ignore, ignore))  # type: ignore[arg-type]
    await file.closing.wait()
    assert slots.taken == 1
    if is_cancelled:
        serving.cancel()
    else:
        file.may_close.set()
    await asyncio.gather(serving, return_exceptions=True)
    assert slots.taken == 0


async def test_a_full_disk_gets_503_and_leaves_no_file(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(over_socket=True, media_reserve=2**62)
    await api.log_in()
    response = await api.http.post(PATH, content=PNG, headers={"Content-Type": "image/png"})
    assert code(response) == (503, 1016)
    assert errors(response)[0]["details"] == "the disk for media is full"
    assert response.headers["Retry-After"] == "60"
    assert on_disk(api) == []


async def test_a_deleted_file_is_removed_from_table_and_disk(served_api: Served, database: Database) -> None:
    kept, deleted = await upload(served_api), await upload(served_api)
    response = await served_api.http.delete(f"{PATH}/{deleted}")
    assert (response.status_code, set(response.json())) == (200, {"meta"})
    for method in ("GET", "DELETE"):
        assert code(await served_api.http.request(method, f"{PATH}/{deleted}")) == (404, 1006)
    [row] = await rows(database)
    assert row.id == kept
    assert on_disk(served_api) == [row.file]


@pytest.mark.parametrize(
    "media_id", [str(uuid.UUID(int=0)), "x", "x" * 5000, "%00", "%C3%BC", "..%2Fsecrets.json", "%"]
)
async def test_an_unknown_id_gets_404(served_api: Served, media_id: str) -> None:
    for method in ("GET", "DELETE"):
        status, _, payload = await raw.call(served_api, method, f"{PATH}/{media_id}")
        assert (status, payload["errors"][0]["code"]) == (404, 1006)
    assert (await served_api.http.head(f"{PATH}/{uuid.UUID(int=0)}")).status_code == 404


async def test_the_file_of_another_account_gets_404(served_api: Served, database: Database) -> None:
    media_id = await upload(served_api)
    async with database.transaction() as connection:
        await connection.execute(media.table.update().values(account="15550000001"))
    assert code(await served_api.http.get(f"{PATH}/{media_id}")) == (404, 1006)
    assert code(await served_api.http.delete(f"{PATH}/{media_id}")) == (404, 1006)


async def test_a_row_without_its_file_gets_404(served_api: Served) -> None:
    media_id = await upload(served_api)
    [name] = on_disk(served_api)
    os.unlink(served_api.settings.media_dir / name)
    assert code(await served_api.http.get(f"{PATH}/{media_id}")) == (404, 1006)
    assert (await served_api.http.delete(f"{PATH}/{media_id}")).status_code == 200


@pytest.mark.parametrize("size", [1, 1000, IN_MEMORY, IN_MEMORY + 1])
async def test_no_byte_of_a_damaged_file_is_returned(served_api: Served, size: int) -> None:
    content = os.urandom(size)
    media_id = await upload(served_api, content, "application/octet-stream")
    [name] = on_disk(served_api)
    path = served_api.settings.media_dir / name
    assert (await served_api.http.get(f"{PATH}/{media_id}")).content == content
    counted = metrics.value("tidings_media_damaged_total")
    for damaged in (content[:-1], content + b"x", content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        response = await served_api.http.get(f"{PATH}/{media_id}")
        assert code(response) == (500, 1014)
        assert errors(response)[0]["details"] == "the stored file is damaged"
        assert (await served_api.http.head(f"{PATH}/{media_id}")).status_code == 500
    assert metrics.value("tidings_media_damaged_total") == counted + 6
    path.write_bytes(content)
    assert (await served_api.http.get(f"{PATH}/{media_id}")).content == content


async def test_a_file_keeps_its_declared_type_whatever_its_content(served_api: Served) -> None:
    for kind, sample in itertools.product(("text/plain", "text/html", "application/x-thing"), SAMPLES.values()):
        media_id = await upload(served_api, sample, kind)
        found = await served_api.http.get(f"{PATH}/{media_id}")
        assert (found.headers["Content-Type"], found.headers["X-Content-Type-Options"]) == (kind, "nosniff")
        assert found.headers["Content-Disposition"] == "attachment"
        assert found.content == sample


async def test_downloading_and_sending_count_as_use(served_api: Served, database: Database) -> None:
    fetched, sent, idle = [await upload(served_api) for _ in range(3)]
    async with database.transaction() as connection:
        await connection.execute(media.table.update().values(used_at=1))
    await served_api.http.get(f"{PATH}/{fetched}")
    await served_api.send(type="image", image={"id": sent})
    used = {row.id: row.used_at for row in await rows(database)}
    assert used[idle] == 1
    assert min(used[fetched], used[sent]) > TOUCH_AFTER_MS


async def test_requests_without_a_valid_token_have_no_effect(served_api: Served) -> None:
    media_id = await upload(served_api)
    headers = {"Authorization": "Bearer wrong", "Content-Type": "image/png"}
    assert code(await served_api.http.post(PATH, content=PNG, headers=headers)) == (401, 1005)
    for method in ("GET", "DELETE"):
        assert code(await served_api.http.request(method, f"{PATH}/{media_id}", headers=headers)) == (401, 1005)
    assert len(on_disk(served_api)) == 1


async def test_a_repeated_upload_gets_the_first_id_and_a_different_file_is_refused(
    served_api: Served, database: Database
) -> None:
    key = {"Idempotency-Key": "picture-1"}
    first = await upload(served_api, **key)
    assert await upload(served_api, **key) == first
    other = await served_api.http.post(PATH, content=PNG + b"x", headers={"Content-Type": "image/png", **key})
    assert code(other) == (422, 1009)
    as_document = await served_api.http.post(PATH, content=PNG, headers={"Content-Type": "x/y", **key})
    assert code(as_document) == (422, 1009)
    assert len(await rows(database)) == len(on_disk(served_api)) == 1
    await served_api.http.delete(f"{PATH}/{first}")
    assert await upload(served_api, **key) == first
    assert on_disk(served_api) == []


async def test_a_refused_upload_does_not_use_its_idempotency_key(served_api: Served) -> None:
    key = {"Idempotency-Key": "k"}
    response = await served_api.http.post(PATH, content=b"x", headers={"Content-Type": "image/png", **key})
    assert code(response) == (400, 1009)
    await upload(served_api, **key)


async def test_an_upload_under_a_key_in_progress_gets_409(served_api: Served) -> None:
    key = {"Idempotency-Key": "slow"}
    async with upload_in_progress(served_api, **key):
        response = await served_api.http.post(PATH, content=PNG, headers={"Content-Type": "image/png", **key})
        assert code(response) == (409, 1025)
        assert response.headers["Retry-After"] == "1"
    assert len(on_disk(served_api)) == 1


async def test_a_client_disconnect_closes_the_file(served_api: Served, events: Events) -> None:
    media_id = await upload(served_api, os.urandom(20 * MIB), "application/octet-stream")
    [file] = on_disk(served_api)

    def is_open() -> bool:
        links = [f"/proc/self/fd/{entry}" for entry in os.listdir("/proc/self/fd")]
        return any(file in os.readlink(link) for link in links if os.path.lexists(link))

    reader, writer = await asyncio.open_connection("127.0.0.1", served_api.port)
    head = f"GET {PATH}/{media_id} HTTP/1.1\r\nHost: t\r\nAuthorization: {served_api.http.headers['Authorization']}"
    writer.write(head.encode() + b"\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert is_open()
    writer.transport.abort()
    await events.wait_for("media.downloaded")
    assert not is_open()


async def test_uploads_of_any_type_and_bytes_get_200_or_400(api: Served, examples: Callable[[int], int]) -> None:
    loop = asyncio.get_running_loop()

    async def send(kind: str, content: bytes) -> None:
        response = await api.http.post(PATH, content=content, headers=[(b"Content-Type", kind.encode())])
        if response.status_code != 200:
            assert code(response)[0] == 400
            return
        media_id = response.json()["media"][0]["id"]
        found = await api.http.get(f"{PATH}/{media_id}")
        assert found.content == content
        assert kinds.parse(found.headers["Content-Type"]) == kinds.parse(kind)

    @hypothesis.settings(max_examples=examples(200))
    @hypothesis.given(
        st.sampled_from(list(SAMPLES))
        | st.from_regex(r"[a-z]{1,5}/[a-z+.-]{1,8}(; ?[a-z]=[^\r\n\x00]{0,5})?", fullmatch=True)
        | st.text(st.characters(min_codepoint=32, max_codepoint=255)),
        st.sampled_from(list(SAMPLES.values())) | st.binary(max_size=100),
    )
    def attempt(kind: str, content: bytes) -> None:
        asyncio.run_coroutine_threadsafe(send(kind, content), loop).result(20)

    await asyncio.to_thread(attempt)


async def test_the_openapi_document_describes_uploads_and_downloads(served_api: Served) -> None:
    document = json.loads((await served_api.http.get("/openapi.json")).text)
    upload_body = document["paths"][PATH]["post"]["requestBody"]["content"]
    assert {"image/png", "audio/ogg; codecs=opus", "video/3gpp", kinds.UNKNOWN} <= set(upload_body)
    assert upload_body["image/png"]["schema"] == {"type": "string", "format": "binary"}
    response = document["paths"][PATH + "/{media_id}"]["get"]["responses"]["200"]
    assert response["content"]["*/*"]["schema"]["format"] == "binary"
    assert "Content-Length" in response["headers"]
    links = document["paths"][PATH]["post"]["responses"]["200"]["links"]
    one = document["paths"][PATH + "/{media_id}"]
    assert {one[method]["operationId"] for method in ("get", "delete")} <= set(links)
