"""Settings of a bucket, and the sources of its credentials: settings, a file, the environment, a role."""

from __future__ import annotations

import datetime
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic_core import PydanticCustomError

from tidings.objects import s3_settings
from tidings.objects.s3 import S3Store
from tidings.objects.s3_settings import S3Settings

BUCKET = {"TIDINGS_MEDIA_S3_BUCKET": "media", "TIDINGS_MEDIA_S3_REGION": "eu-central-1"}
KEYS = {"TIDINGS_MEDIA_S3_ACCESS_KEY_ID": "ours", "TIDINGS_MEDIA_S3_SECRET_ACCESS_KEY": "secret"}


def read(**variables: str) -> S3Settings | None:
    return s3_settings.read_s3(variables, s3_settings.MEDIA)


def test_media_and_blobs_have_separate_buckets() -> None:
    variables = {**BUCKET, **KEYS, "TIDINGS_NETWORK_BLOB_S3_BUCKET": "blobs", "TIDINGS_NETWORK_BLOB_S3_PREFIX": "a/b"}
    media = s3_settings.read_s3(variables, s3_settings.MEDIA)
    blobs = s3_settings.read_s3(variables, s3_settings.BLOBS)
    assert media == S3Settings("media", region="eu-central-1", access_key_id="ours", secret_access_key="secret")
    assert blobs == S3Settings("blobs", prefix="a/b/")
    assert read() is None


def test_the_secret_key_can_be_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from the file\n")
    settings = read(**BUCKET, TIDINGS_MEDIA_S3_ACCESS_KEY_ID="ours", TIDINGS_MEDIA_S3_SECRET_ACCESS_KEY_FILE=str(path))
    assert settings is not None
    assert settings.secret_access_key == "from the file"
    assert "from the file" not in repr(settings)


@pytest.mark.parametrize(
    ("variables", "encryption"),
    [
        ({}, {}),
        ({"SSE": "AES256"}, {"ServerSideEncryption": "AES256"}),
        ({"SSE": "aws:kms", "SSE_KEY": "k"}, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}),
    ],
)
def test_encryption_at_the_server_is_configurable(variables: dict[str, str], encryption: dict[str, str]) -> None:
    settings = read(**BUCKET, **{f"TIDINGS_MEDIA_S3_{name}": value for name, value in variables.items()})
    assert settings is not None
    assert settings.encryption == encryption


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"BUCKET": "", "PREFIX": "a"}, "TIDINGS_MEDIA_S3_PREFIX is set, and TIDINGS_MEDIA_S3_BUCKET is not"),
        ({"ACCESS_KEY_ID": "ours"}, "must be set together"),
        ({"SSE": "AES128"}, "TIDINGS_MEDIA_S3_SSE='AES128' is none of AES256, aws:kms"),
        ({"SSE": "AES256", "SSE_KEY": "k"}, "TIDINGS_MEDIA_S3_SSE_KEY requires TIDINGS_MEDIA_S3_SSE=aws:kms"),
        ({"ENDPOINT": "s3.example"}, "is not a URL like https://s3.example"),
        ({"ENDPOINT": "http://s3.example"}, "TIDINGS_MEDIA_S3_ENDPOINT"),
    ],
)
def test_settings_that_cannot_work_are_refused(variables: dict[str, str], error: str) -> None:
    named = {f"TIDINGS_MEDIA_S3_{name}": value for name, value in variables.items()}
    with pytest.raises(PydanticCustomError, match=re.escape(error)):
        read(**{**BUCKET, "TIDINGS_MEDIA_S3_REGION": "", **named})


class Endpoint:
    """Server that issues credentials of a role, and keeps the access keys and session tokens of S3 requests."""

    def __init__(self) -> None:
        self.used: list[tuple[str, str]] = []
        app = web.Application()
        app.router.add_put("/latest/api/token", self._token)
        app.router.add_get("/latest/meta-data/iam/security-credentials/", self._role)
        app.router.add_get("/latest/meta-data/iam/security-credentials/the-role", self._credentials)
        app.router.add_get("/task", self._credentials)
        app.router.add_route("*", "/media/{key:.*}", self._s3)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/")).rstrip("/")

    async def _token(self, request: web.Request) -> web.Response:
        return web.Response(text="token")

    async def _role(self, request: web.Request) -> web.Response:
        return web.Response(text="the-role")

    async def _credentials(self, request: web.Request) -> web.Response:
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=6)
        return web.json_response(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": "OFTHEROLE",
                "SecretAccessKey": "secret",
                "Token": "session",
                "LastUpdated": "2026-01-01T00:00:00Z",
                "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )

    async def _s3(self, request: web.Request) -> web.Response:
        found = re.search(r"Credential=([^/]+)/", request.headers.get("Authorization", ""))
        self.used.append((found[1] if found else "", request.headers.get("X-Amz-Security-Token", "")))
        return web.Response()


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Endpoint]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    endpoint = Endpoint()
    await endpoint.server.start_server()
    yield endpoint
    await endpoint.server.close()


def of_the_settings(endpoint: Endpoint, set_variable: Callable[[str, str], None], directory: Path) -> dict[str, str]:
    return KEYS


def of_the_environment(endpoint: Endpoint, set_variable: Callable[[str, str], None], directory: Path) -> dict[str, str]:
    set_variable("AWS_ACCESS_KEY_ID", "OFTHEENVIRONMENT")
    set_variable("AWS_SECRET_ACCESS_KEY", "secret")
    return {}


def of_a_file(endpoint: Endpoint, set_variable: Callable[[str, str], None], directory: Path) -> dict[str, str]:
    text = "[default]\naws_access_key_id = OFTHEFILE\naws_secret_access_key = secret\n"
    (directory / "credentials").write_text(text)
    return {}


def of_the_task(endpoint: Endpoint, set_variable: Callable[[str, str], None], directory: Path) -> dict[str, str]:
    set_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint.url}/task")
    return {}


def of_the_instance(endpoint: Endpoint, set_variable: Callable[[str, str], None], directory: Path) -> dict[str, str]:
    set_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.url)
    return {}


@pytest.mark.parametrize(
    ("prepare", "used"),
    [
        (of_the_settings, ("ours", "")),
        (of_the_environment, ("OFTHEENVIRONMENT", "")),
        (of_a_file, ("OFTHEFILE", "")),
        (of_the_task, ("OFTHEROLE", "session")),
        (of_the_instance, ("OFTHEROLE", "session")),
    ],
)
async def test_requests_are_signed_with_the_credentials_of_each_source(
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    prepare: Callable[[Endpoint, Callable[[str, str], None], Path], dict[str, str]],
    used: tuple[str, str],
) -> None:
    given = prepare(endpoint, monkeypatch.setenv, tmp_path)
    settings = read(**BUCKET, **given, TIDINGS_MEDIA_S3_ENDPOINT=endpoint.url)
    assert settings is not None
    files = S3Store(settings)
    try:
        assert await files.has_any(["0" * 32])
    finally:
        await files.close()
    assert endpoint.used == [used]
