"""Files of messages: uploaded to the Cloud API once, links passed on, files of recipients fetched and compared."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coreapp.graph_api import number
from coreapp.graph_api.client import CloudResponse
from coreapp.graph_api.refused_files import FileRefusal, RefusedFiles
from coreapp.media import downloads, retry
from coreapp.upstream import files
from coreapp.upstream.files import UpstreamFetcher
from tests.authority import Authority
from tests.coreapp.conftest import World
from tests.coreapp.graph_api.test_client import LOOPBACK
from tests.coreapp.media_scene import PNG, failure, find, read, send, send_image, upload
from tests.coreapp.signals import soon
from tests.coreapp.upstream.conftest import ANN, BEN, message, post, status, until_no_jobs
from tests.coreapp.upstream.scripted_cloud import HOLD, ScriptedCloud, refused
from tests.manual_clock import ManualClock
from tidings.aio.clock import SystemClock
from tidings.client.errors import NetworkUnreached
from tidings.egress.download import Downloader
from tidings.egress.guard import EgressGuard


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FIRST_RETRY_SECONDS", 0.01)


async def test_a_file_is_uploaded_once_however_many_messages_name_it(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await upstream_world.start()
    row = await upload(upstream_world, filename="a b.png")
    for peer in (ANN, BEN, ANN):
        await send_image(running, peer, row.id, caption="c")
    await until_no_jobs(upstream_world)
    assert cloud.uploads == [
        {
            "messaging_product": "whatsapp",
            "type": "image/png",
            "file": PNG,
            "filename": "a b.png",
            "mime_type": "image/png",
        }
    ]
    assert [body["image"] for body in cloud.posts] == [{"id": "701", "caption": "c"}] * 3
    # Another owner knows the id from the row.
    await running.stopped()
    again = await upstream_world.start(node="second")
    await send_image(again, ANN, row.id)
    await until_no_jobs(upstream_world)
    assert len(cloud.uploads) == 1
    assert cloud.posts[-1]["image"] == {"id": "701"}


async def test_an_id_of_the_cloud_api_is_kept_for_29_days() -> None:
    assert files.LIFETIME_MS == 29 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    "lost",
    [
        refused(100, "Unsupported post request", error_subcode=33),
        refused(131053, "Media upload error"),
        refused(100, error_data={"details": "Param image['id'] is not a valid media attachment ID"}),
    ],
)
async def test_a_file_that_the_cloud_api_has_lost_is_uploaded_again(
    upstream_world: World, cloud: ScriptedCloud, lost: Any
) -> None:
    cloud.policy = lambda body: lost if body.get("image", {}).get("id") == "701" else None
    running = await upstream_world.start()
    row = await upload(upstream_world)
    first = await send_image(running, ANN, row.id, caption="c")
    behind = await running.client.send(ANN, "behind")
    await until_no_jobs(upstream_world)
    assert [body.get("image") for body in cloud.posts] == [
        {"id": "701", "caption": "c"},
        {"id": "702", "caption": "c"},
        None,
    ]
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [first.id, first.id, behind.id]
    # Later messages use the new id, also those of the next owner.
    await send_image(running, BEN, row.id)
    await until_no_jobs(upstream_world)
    await running.stopped()
    again = await upstream_world.start(node="second")
    await send_image(again, BEN, row.id)
    await until_no_jobs(upstream_world)
    assert [body["image"]["id"] for body in cloud.to(BEN)] == ["702", "702"]
    assert len(cloud.uploads) == 2
    assert upstream_world.sink.labels() == []


@pytest.mark.parametrize(
    ("lost", "code"), [(refused(100, error_subcode=33), 1006), (refused(131053, "Media upload error"), 400)]
)
async def test_a_file_is_uploaded_again_only_once_for_a_message(
    upstream_world: World, cloud: ScriptedCloud, lost: Any, code: int
) -> None:
    cloud.policy = lambda body: lost if "image" in body else None
    running = await upstream_world.start()
    row = await upload(upstream_world)
    message_id = (await send_image(running, ANN, row.id)).id
    assert (await failure(upstream_world, message_id))["code"] == code
    assert len(cloud.uploads) == 2
    assert len(cloud.posts) == 2
    # The number itself works.
    await running.client.send(ANN, "behind")
    await until_no_jobs(upstream_world)
    assert not running.shard.is_stopped


@pytest.mark.parametrize(
    ("lost", "code"), [(refused(100, error_subcode=33), 1006), (refused(131053, "Media upload error"), 400)]
)
async def test_a_file_that_posts_are_refused_for_is_uploaded_again_once_for_all_messages(
    upstream_world: World, cloud: ScriptedCloud, lost: Any, code: int
) -> None:
    cloud.policy = lambda body: lost if body.get("image", {}).get("id") != "703" and "image" in body else None
    running = await upstream_world.start()
    row, other = await upload(upstream_world), await upload(upstream_world, content=PNG + b"other")
    # Some messages are in flight together, others follow.
    ids = [(await send_image(running, f"155502{place:05}", row.id)).id for place in range(40)]
    await until_no_jobs(upstream_world)
    ids += [(await send_image(running, f"155503{place:05}", row.id)).id for place in range(10)]
    for message_id in ids:
        assert (await failure(upstream_world, message_id))["code"] == code
    assert len(cloud.uploads) == 2
    # Another file is uploaded, and the number works.
    await send_image(running, BEN, other.id)
    await until_no_jobs(upstream_world)
    assert [body["image"] for body in cloud.to(BEN)] == [{"id": "703"}]
    assert not running.shard.is_stopped


async def test_a_refused_file_is_tried_again_after_five_minutes_of_messages_that_name_it(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(number, "RefusedFiles", lambda _: RefusedFiles(clock))
    cloud.policy = lambda body: refused(131053, "Media upload error")
    running = await upstream_world.start()
    row = await upload(upstream_world)
    uploads = []
    for _ in range(4):
        await failure(upstream_world, (await send_image(running, ANN, row.id)).id)
        uploads.append(len(cloud.uploads))
        clock.advance(120.0)
    assert uploads == [2, 2, 2, 3]


async def test_a_message_of_a_refused_file_waits_while_the_number_is_stopped(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: refused(100, "Unsupported post request", error_subcode=33)
    running = await upstream_world.start()
    row = await upload(upstream_world)
    await failure(upstream_world, (await send_image(running, ANN, row.id)).id)
    await running.client.send(ANN, "text")
    await soon(lambda: running.shard.is_stopped)
    image_id = (await send_image(running, BEN, row.id)).id
    upstream = running.node.numbers.first.process.upstream
    for posts in (4, 5):
        # One post each is permitted: of the text, then of the image.
        upstream.pace.resume()
        await soon(lambda posts=posts: len(cloud.posts) == posts and not upstream.pace.in_flight)  # type: ignore[misc]
    assert cloud.posts[-1]["biz_opaque_callback_data"] == image_id
    assert running.shard.is_stopped
    cloud.policy = lambda body: None
    upstream.pace.resume()
    await until_no_jobs(upstream_world)
    assert cloud.posts[-1]["biz_opaque_callback_data"] == image_id
    assert len(upstream_world.sink.labels()) == 1


async def test_a_lost_file_beside_a_refused_one_is_uploaded_again(upstream_world: World, cloud: ScriptedCloud) -> None:
    cloud.policy = lambda body: (
        refused(131053, "Media upload error") if body.get("image", {}).get("id") != "704" else None
    )
    running = await upstream_world.start()
    row, other = await upload(upstream_world), await upload(upstream_world, content=PNG + b"other")
    assert (await failure(upstream_world, (await send_image(running, ANN, row.id)).id))["code"] == 400
    await send_image(running, BEN, other.id)
    await until_no_jobs(upstream_world)
    assert [body["image"]["id"] for body in cloud.to(BEN)] == ["703", "704"]


async def test_a_file_that_the_cloud_api_refuses_is_uploaded_once_for_all_messages(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.upload_policy = lambda: refused(100, "Param file must be a file with one of the following types")
    running = await upstream_world.start()
    row = await upload(upstream_world)
    for place in range(20):
        message_id = (await send_image(running, f"155502{place:05}", row.id)).id
        error = await failure(upstream_world, message_id)
        assert error["code"] == 400
        assert "id: the Cloud API refuses the file: (#100) Param file must be" in error["details"]
    assert len(cloud.uploads) == 1
    assert cloud.posts == []


async def test_a_refusal_of_a_file_is_remembered_for_five_minutes_and_bounded() -> None:
    clock = ManualClock()
    found, refusal = RefusedFiles(clock), FileRefusal(400, "why")
    found.add(["a", "b"], refusal)
    assert (found.find(("a", "b")), found.find(("a",))) == (refusal, None)
    clock.advance(299.9)
    assert found.find(["a", "b"]) == refusal
    clock.advance(0.1)
    assert found.find(["a", "b"]) is None
    for place in range(10_001):
        found.add([str(place)], refusal)
    assert (found.find(["0"]), found.find(["1"])) == (None, refusal)


async def test_a_status_settles_a_message_whose_file_is_uploaded_again(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: refused(131053, "Media upload error") if "image" in body else None
    running = await upstream_world.start()
    row = await upload(upstream_world)
    cloud.upload_policy = lambda: refused(4) if len(cloud.uploads) > 1 else None
    first = await send_image(running, ANN, row.id)
    await cloud.signals.until(lambda: len(cloud.uploads) == 2)
    await post(running, status(first.id, "delivered"))
    behind = await running.client.send(ANN, "behind")
    await until_no_jobs(upstream_world)
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.statuses_of(first.id) == ["sent", "delivered"])
    cloud.upload_policy = lambda: None
    # The upload ends, and posts nothing.
    await send_image(running, BEN, row.id)
    await cloud.signals.until(lambda: len(cloud.to(BEN)) == 1)
    assert [body["biz_opaque_callback_data"] for body in cloud.to(ANN)] == [first.id, behind.id]


async def test_a_post_that_a_crash_interrupted_is_repeated_with_the_ids_of_its_files(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start()
    row = await upload(upstream_world)
    message_id = (await send_image(running, ANN, row.id, caption="c")).id
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    await running.killed()
    cloud.policy = lambda body: None
    await upstream_world.start(node="second", cloud_resends_unknown=True)
    await until_no_jobs(upstream_world)
    assert [body["image"] for body in cloud.posts] == [{"id": "701", "caption": "c"}] * 2
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [message_id] * 2
    assert len(cloud.uploads) == 1


async def test_a_pointer_of_the_network_is_not_taken_for_an_id(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    row = await upload(upstream_world, blob=b"sealed for the network", blob_expires_at=2**41)
    await send_image(running, ANN, row.id)
    await until_no_jobs(upstream_world)
    assert len(cloud.uploads) == 1


async def test_a_link_is_passed_on(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    link = "https://example.com/a.png"
    await send(running, ANN, {"type": "image", "image": {"link": link, "caption": "c"}})
    await until_no_jobs(upstream_world)
    assert cloud.uploads == []
    assert cloud.posts[0]["image"] == {"link": link, "caption": "c"}


async def test_files_in_headers_are_uploaded(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    row = await upload(upstream_world)
    header = {"type": "header", "parameters": [{"type": "image", "image": {"id": row.id}}]}
    template = {"name": "t", "language": {"code": "en"}, "components": [header], "filled": {}}
    await send(running, ANN, {"type": "template", "template": template})
    await until_no_jobs(upstream_world)
    (component,) = cloud.posts[0]["template"]["components"]
    assert component["parameters"] == [{"type": "image", "image": {"id": "701"}}]


async def test_messages_to_a_recipient_wait_for_a_file_before_them(upstream_world: World, cloud: ScriptedCloud) -> None:
    responses: list[Any] = [refused(131016, status=500), refused(4), (500, {}), None]
    cloud.upload_policy = lambda: responses.pop(0)
    running = await upstream_world.start()
    row = await upload(upstream_world)
    first = await send_image(running, ANN, row.id)
    second = await running.client.send(ANN, "behind")
    await until_no_jobs(upstream_world)
    assert len(cloud.uploads) == 4
    assert [body["biz_opaque_callback_data"] for body in cloud.posts] == [first.id, second.id]


async def test_a_file_that_the_cloud_api_refuses_fails_its_message_only(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.upload_policy = lambda: refused(100, "Param file must be a file with one of the following types")
    running = await upstream_world.start()
    row = await upload(upstream_world)
    message_id = (await send_image(running, ANN, row.id)).id
    await running.client.send(ANN, "behind")
    error = await failure(upstream_world, message_id)
    assert error["code"] == 400
    assert "Param file must be" in error["details"]
    await until_no_jobs(upstream_world)
    assert [body["type"] for body in cloud.posts] == ["text"]


async def test_a_file_that_is_gone_fails_its_message(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    message_id = (await send_image(running, ANN, "11111111-1111-4111-8111-111111111111")).id
    assert (await failure(upstream_world, message_id))["code"] == 1006
    assert cloud.posts == []


async def test_a_begun_post_with_a_file_needs_no_upload_at_the_next_owner(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    cloud.policy = lambda body: HOLD
    running = await upstream_world.start()
    row = await upload(upstream_world)
    message_id = (await send_image(running, ANN, row.id)).id
    await cloud.signals.until(lambda: len(cloud.posts) == 1)
    await running.killed()
    await upstream_world.start(node="second")
    error = await failure(upstream_world, message_id)
    assert error["details"].startswith("may have been sent")
    assert (len(cloud.posts), len(cloud.uploads)) == (1, 1)


def image(media_id: str, content: bytes = PNG) -> dict[str, Any]:
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    return {"mime_type": "image/png", "sha256": digest, "id": media_id, "url": "https://x", "caption": "c"}


async def test_a_recipients_file_is_fetched_and_compared_before_it_is_reported(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    await upstream_world.configure(media={"auto_download": ["image"]})
    cloud.files["901"] = PNG
    running = await upstream_world.start()
    await post(running, message("wamid.IN=", type="image", image=image("901")))
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    shown = upstream_world.sink.taken()[0].body["messages"][0]["image"]
    assert read(shown.pop("file")) == PNG
    row = await find(upstream_world, shown.pop("id"))
    assert row is not None
    assert row.sha256 == hashlib.sha256(PNG).hexdigest()
    assert shown == {
        "mime_type": "image/png",
        "sha256": hashlib.sha256(PNG).hexdigest(),
        "caption": "c",
        "status": "downloaded",
    }


async def test_a_file_that_is_not_the_named_one_or_is_gone_is_reported_without_it(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    await upstream_world.configure(media={"auto_download": ["image"]})
    cloud.files["901"] = PNG
    running = await upstream_world.start()
    await post(
        running,
        message("wamid.A=", type="image", image=image("901", b"another")),
        message("wamid.B=", type="image", image=image("902")),
    )
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 2)
    for posted in upstream_world.sink.taken():
        (entry,) = posted.body["messages"]
        assert entry["errors"][0]["code"] == 400
        assert "id" not in entry["image"]


async def test_without_automatic_download_a_file_is_reported_at_once(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    await upstream_world.configure(media={"auto_download": []})
    running = await upstream_world.start()
    await post(running, message("wamid.A=", type="image", image=image("901")))
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    assert upstream_world.sink.taken()[0].body["messages"][0]["image"]["status"] == "undownloaded"


async def test_a_recipient_s_file_is_fetched_after_an_outage_of_the_file_host(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "delay", lambda attempt: 0.01)
    await upstream_world.configure(media={"auto_download": ["image"]})
    # A file that cannot be read is tried 5 times.
    cloud.files["901"], cloud.file_failures = PNG, 7
    running = await upstream_world.start()
    await post(running, message("wamid.IN=", type="image", image=image("901")))
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    shown = upstream_world.sink.taken()[0].body["messages"][0]
    assert "errors" not in shown
    assert cloud.file_failures == 0


async def test_an_untrusted_certificate_is_a_temporary_error(tmp_path: Path) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    tls = Authority().server_context(tmp_path, "127.0.0.1")
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]

    class Api:
        async def get(self, url: str, token: str) -> CloudResponse:
            return CloudResponse(200, {}, json.dumps({"url": f"https://127.0.0.1:{port}/f"}).encode())

    access: Any = SimpleNamespace(token="t", upstream=SimpleNamespace(phone_number_id="1"), url=lambda path: path)
    anything: Any = None
    api: Any = Api()
    pointer: Any = SimpleNamespace(blob="901")
    fetcher = UpstreamFetcher(
        anything,
        anything,
        anything,
        working=tmp_path,
        clock=anything,
        client=api,
        access=lambda: access,
        downloader=Downloader(EgressGuard(LOOPBACK)),
    )
    with pytest.raises(NetworkUnreached) as found:
        async for _ in fetcher._plaintext(anything, pointer):
            pass
    server.close()
    assert isinstance(retry.after_failure(found.value, 1, 1.0), retry.TryAgain)


async def test_a_cloud_api_that_hangs_delays_no_files_of_another_number(upstream_world: World) -> None:
    settings = upstream_world.settings
    first, second = (number.NumberConnections(settings, SystemClock()) for _ in range(2))
    for _ in range(settings.media_transfers):
        await first.uploads.acquire()
        await first.downloads.acquire()
    assert first.uploads.locked()
    assert not second.uploads.locked()
    assert not second.downloads.locked()
    running = await upstream_world.start()
    context = running.shard.context
    exchange = files.exchange_of(context)
    assert exchange is not None
    assert context.upstream is not None
    assert exchange.uploader.slots is context.upstream.uploads
