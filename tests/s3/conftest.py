"""Real S3 server for all tests, and a bucket for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from aiobotocore.session import get_session

from harness.s3_server import ACCESS_KEY, REGION, SECRET_KEY, MinIO, S3Server
from tidings.objects.s3_settings import S3Settings

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """S3 server. A test that stops or freezes it must restart it."""
    server = S3Server()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def minio() -> Iterator[MinIO]:
    """S3 server that encrypts at rest and has lifecycle rules."""
    server = MinIO()
    server.start()
    yield server
    server.remove()


@pytest.fixture
async def bucket(s3: S3Server) -> S3Settings:
    """Empty bucket."""
    settings = settings_of(s3)
    await create(settings)
    return settings


def settings_of(server: S3Server, authorities: str = "") -> S3Settings:
    """Return the settings of a bucket that does not exist yet."""
    return S3Settings(
        bucket=f"tidings-{next(_numbers)}",
        prefix="one/",
        endpoint=server.url,
        region=REGION,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        authorities=authorities,
    )


async def create(settings: S3Settings) -> None:
    """Create the bucket."""
    async with client_of(settings) as client:
        await client.create_bucket(Bucket=settings.bucket)


def client_of(settings: S3Settings) -> Any:
    """Return a client of the bucket's server, as a context manager."""
    return get_session().create_client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        verify=settings.authorities or None,
    )
