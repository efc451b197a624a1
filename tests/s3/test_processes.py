"""Processes that share a bucket: several Webapps, a Coreapp, nodes of the network, and an unavailable server."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.doctor.file_stores import BucketCheck, RecordedStoreCheck
from cli.doctor.findings import Level
from coreapp.media import uploads
from harness import metrics, polling
from harness.s3_server import S3Server
from tests.conftest import DatabaseFactory
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import World, make_settings, network, sink  # noqa: F401
from tests.coreapp.media.test_media_outgoing import NUMBER, begin
from tests.coreapp.scripted_network import ScriptedNetwork
from tests.coreapp.sink import Sink
from tests.media_samples import PNG
from tests.network.support import ALICE, BOB, Network
from tests.network.test_blobs import download, upload
from tests.webapp.test_media_crash import logged_in, webapp
from tidings.objects import identity
from tidings.objects.s3 import S3Store
from tidings.objects.s3_settings import S3Settings

TYPE = {"Content-Type": "image/png"}


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


def variables(bucket: S3Settings, name: str) -> dict[str, str]:
    return {
        f"{name}_BUCKET": bucket.bucket,
        f"{name}_PREFIX": bucket.prefix,
        f"{name}_ENDPOINT": bucket.endpoint,
        f"{name}_REGION": bucket.region,
    }


async def test_webapps_share_media_through_a_bucket_and_an_outage_is_503(
    s3: S3Server, bucket: S3Settings, tmp_path: Path
) -> None:
    # The credentials come from the environment.
    found = variables(bucket, "TIDINGS_MEDIA_S3") | {
        "AWS_ACCESS_KEY_ID": bucket.access_key_id,
        "AWS_SECRET_ACCESS_KEY": bucket.secret_access_key,
    }
    large = os.urandom(10 * 1024 * 1024)
    async with (
        webapp(tmp_path, **found) as (_, one),
        webapp(tmp_path, **found) as (_, other),
        logged_in(one) as http,
        logged_in(other) as elsewhere,
    ):
        ids = []
        for content, kind in ((PNG, "image/png"), (large, "application/octet-stream")):
            response = await http.post("/v1/media", content=content, headers={"Content-Type": kind})
            assert response.status_code == 200, response.text
            ids.append(response.json()["media"][0]["id"])
        assert (await elsewhere.get(f"/v1/media/{ids[0]}")).content == PNG
        assert (await elsewhere.get(f"/v1/media/{ids[1]}")).content == large
        s3.stop()
        try:
            assert (await elsewhere.get(f"/v1/media/{ids[0]}")).status_code == 503
            response = await http.post("/v1/media", content=PNG, headers=TYPE)
            assert response.status_code == 503
            assert "Retry-After" in response.headers
        finally:
            s3.start()
        assert (await elsewhere.get(f"/v1/media/{ids[0]}")).content == PNG
        assert (await elsewhere.delete(f"/v1/media/{ids[0]}")).status_code == 200
        assert (await http.get(f"/v1/media/{ids[0]}")).status_code == 404
    assert not any((tmp_path / "media").glob("*"))


@pytest.fixture
async def world(
    database_factory: DatabaseFactory,
    tmp_path: Path,
    network: ScriptedNetwork,  # noqa: F811
    sink: Sink,  # noqa: F811
    bucket: S3Settings,
) -> AsyncIterator[World]:
    database = await database_factory("business")
    settings = make_settings(tmp_path, database, network).model_copy(update={"media_bucket": bucket})
    world = World(database, network, sink, settings)
    await world.configure(webhooks={"url": sink.url, "message": {"sent": True}}, sent_status=True)
    yield world
    await world.close()


async def test_a_message_waits_while_the_bucket_is_unavailable_and_is_sent_afterwards(
    world: World, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FIRST_RETRY_SECONDS", 0.01)
    running, inbox = await begin(world)
    files = running.node.process.files
    medium = await scene.upload(world, files=files)
    s3.stop()
    try:
        unreadable = metrics.value("tidings_media_uploads_total", type="image", result="unreadable")
        response = await scene.send_image(running, NUMBER, medium.id)
        await polling.until(
            lambda: metrics.value("tidings_media_uploads_total", type="image", result="unreadable") >= unreadable + 2
        )
        assert world.sink.statuses_of(response.id) == []
    finally:
        s3.start()
    await inbox.until(1)
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["image"]) == scene.PNG
    await files.delete([medium.file])
    other = await scene.upload(world, scene.PNG + b"2", files=files)
    await files.delete([other.file])
    response = await scene.send_image(running, NUMBER, other.id)
    assert (await scene.failure(world, response.id))["code"] == 1006
    await files.close()


async def test_network_nodes_keep_blobs_in_a_bucket_and_an_outage_is_503(
    database_factory: DatabaseFactory, s3: S3Server, bucket: S3Settings
) -> None:
    kept = Network((await database_factory("network")).settings, "tcp")
    kept.blobs = kept.blobs.model_copy(update={"bucket": bucket})
    try:
        await kept.start()
        await kept.register(ALICE, BOB)
        content = os.urandom(9 * 1024 * 1024)
        status, response = await upload(kept, content)
        assert status == 201
        assert await download(kept, response["id"]) == (200, content)
        s3.stop()
        try:
            assert (await download(kept, response["id"]))[0] == 503
            assert (await upload(kept, b"x"))[0] == 503
        finally:
            s3.start()
        assert await download(kept, response["id"]) == (200, content)
        store = S3Store(bucket)
        assert [page async for page in store.list_old(2**40)] != []
        await store.close()
    finally:
        await kept.remove()


async def test_the_doctor_checks_the_bucket(
    database_factory: DatabaseFactory, s3: S3Server, bucket: S3Settings
) -> None:
    database, files = await database_factory("business"), S3Store(bucket)
    recorded = RecordedStoreCheck(identity.of_media(database, files), files)
    assert (await recorded.run())[0].level is Level.WARNING
    await identity.of_media(database, files).claim()
    assert (await recorded.run())[0].level is Level.FINE
    # The gateway has no lifecycle rules.
    assert (await BucketCheck("media", files, keeps=None).run())[0].level is Level.WARNING
    wrong = S3Store(dataclasses.replace(bucket, bucket="not-there"))
    assert (await BucketCheck("media", wrong, keeps=None).run())[0].level is Level.ERROR
    for store in (files, wrong):
        await store.close()
