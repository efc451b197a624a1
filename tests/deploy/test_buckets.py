"""`docker-compose.s3.yml`: files and blobs are in buckets of an S3 server outside the containers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import polling
from harness.packages import PackageMissing
from harness.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.authority import Authority
from tests.deploy import images
from tests.deploy.business import PASSWORD, Business, Webhook
from tests.deploy.podman import MACHINE, ROOT, Podman
from tests.deploy.project import Project, leftovers
from tests.media_samples import PNG
from tests.s3.conftest import create, settings_of
from tidings.net.tls import TlsFiles

READER = "15550110001"
SERVERS = ("database", "network", "coreapp", "webapp")
BUCKETS = {"TIDINGS_MEDIA_S3": "media", "TIDINGS_NETWORK_BLOB_S3": "blobs"}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority().files(tmp_path_factory.mktemp("tls"), "s3", MACHINE)


@pytest.fixture(scope="module")
def s3(tls: TlsFiles) -> Iterator[S3Server]:
    try:
        server = S3Server(tls, MACHINE)
    except PackageMissing as missing:
        pytest.skip(str(missing))
    server.start()
    yield server
    server.remove()


def files_in(server: S3Server, bucket: str) -> list[Path]:
    return [path for path in (server.directory / "data" / bucket).rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def project(podman: Podman, s3: S3Server, tls: TlsFiles) -> Iterator[Project]:
    variables = {
        **images.VARIABLES,
        "TIDINGS_OUTGOING_ALLOW_WEBHOOKS": f"{MACHINE}/32",
        "TIDINGS_REENGAGEMENT_WINDOW": "0",
        "TIDINGS_ROBOTS_PER_KIND": "20",
        "TIDINGS_S3_CA_FILE": tls.authorities,
    }
    for name, bucket in BUCKETS.items():
        asyncio.run(create(dataclasses.replace(settings_of(s3, tls.authorities), bucket=bucket)))
        variables |= {
            f"{name}_BUCKET": bucket,
            f"{name}_ENDPOINT": s3.url,
            f"{name}_REGION": REGION,
            f"{name}_ACCESS_KEY_ID": ACCESS_KEY,
            f"{name}_SECRET_ACCESS_KEY": SECRET_KEY,
        }
    folder = ROOT / "docker"
    made = Project(podman, folder / "docker-compose.yml", variables, folder / "docker-compose.s3.yml")
    try:
        made.up()
        made.wait_healthy(SERVERS)
        polling.wait_until(lambda: "robots.ready" in made.logs("robots"), seconds=120, pause=0.5)
        yield made
    finally:
        made.down()
    assert leftovers(podman) == []


def test_an_uploaded_picture_is_in_the_bucket_and_reaches_its_recipient(project: Project, s3: S3Server) -> None:
    business, webhook = Business("https://127.0.0.1:9090"), Webhook(MACHINE)
    try:
        first = project.inside("webapp", "cat", "/var/lib/tidings/admin_password").strip()
        assert business.login(first, PASSWORD)[0] == 200
        polling.wait_until(
            lambda: "connected" in json.dumps(business.call("GET", "/v1/health")[1]), seconds=60, pause=0.5
        )
        settings = {"webhooks": {"url": webhook.url}, "sent_status": True}
        assert business.call("PATCH", "/v1/settings/application", settings)[0] == 200
        media = business.upload(PNG, "image/png")
        assert business.download(media) == PNG
        body = {"to": READER, "type": "image", "image": {"id": media}}
        status, response = business.call("POST", "/v1/messages", body)
        assert status == 201, response
        sent = response["messages"][0]["id"]
        assert webhook.wait(lambda: "read" in webhook.statuses().get(sent, []), 60), webhook.statuses()
    finally:
        webhook.close()
    # The marker of the store, and the file.
    assert len(files_in(s3, "media")) == 2
    assert len(files_in(s3, "blobs")) == 2
