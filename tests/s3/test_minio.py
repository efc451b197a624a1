"""Encryption at rest and lifecycle rules, in buckets of a server that has both."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cli.doctor.file_stores import BucketCheck
from cli.doctor.findings import Level
from harness.s3_server import KMS_KEY, MinIO
from tests.objects.conformance import MIB, get, put
from tests.s3.conftest import client_of, create, settings_of
from tidings.objects.s3 import S3Store
from tidings.objects.s3_settings import S3Settings

PLAINTEXT = b"what nobody reads on the disk "
EXPIRE = {"ID": "old files", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}
DAY = 86_400.0


@pytest.fixture
async def bucket(minio: MinIO) -> S3Settings:
    settings = settings_of(minio)
    await create(settings)
    return settings


def is_on_disk(directory: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [MIB, 9 * MIB], ids=["one request", "multipart"])
@pytest.mark.parametrize(
    ("sse", "key", "stored_key"),
    [("AES256", "", None), ("aws:kms", KMS_KEY, KMS_KEY)],
)
async def test_files_are_encrypted_at_rest_as_set(
    minio: MinIO, bucket: S3Settings, sse: str, key: str, stored_key: str | None, size: int
) -> None:
    content = (PLAINTEXT * (size // len(PLAINTEXT) + 1))[:size]
    files = S3Store(dataclasses.replace(bucket, sse=sse, sse_key=key))
    stored = await put(files, content)
    async with client_of(bucket) as client:
        found = await client.head_object(Bucket=bucket.bucket, Key=f"{files.files_prefix}{stored.name}")
    assert found["ServerSideEncryption"] == sse
    assert (found.get("SSEKMSKeyId") or "").endswith(stored_key or "")
    assert await get(files, stored.name) == content
    assert not is_on_disk(minio.directory / "data" / bucket.bucket, PLAINTEXT)
    await files.close()
    # The same search finds a file that is not encrypted.
    plain = S3Store(bucket)
    await put(plain, content)
    assert is_on_disk(minio.directory / "data" / bucket.bucket, PLAINTEXT)
    await plain.close()


@pytest.mark.parametrize(
    ("keeps", "level"),
    # MinIO refuses rules that abort multipart uploads, so that their absence is reported.
    [(6 * DAY, Level.WARNING), (8 * DAY, Level.ERROR), (None, Level.ERROR)],
)
async def test_the_doctor_judges_the_lifecycle_rules_of_the_server(
    bucket: S3Settings, keeps: float | None, level: Level
) -> None:
    files = S3Store(bucket)
    async with client_of(bucket) as client:
        await client.put_bucket_lifecycle_configuration(
            Bucket=bucket.bucket, LifecycleConfiguration={"Rules": [EXPIRE]}
        )
    assert [finding.level for finding in await BucketCheck("media", files, keeps=keeps).run()] == [level]
    await files.close()
