"""File store in a bucket of S3 or a compatible server.

Imported only where a bucket is configured: it needs the extra `tidings[s3]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import aiohttp
import botocore.exceptions
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from prometheus_client import Counter

from tidings.media.errors import FileEmpty, FileGone, FileTooLarge, StoreUnavailable
from tidings.objects import store
from tidings.objects.s3_settings import S3Settings
from tidings.objects.store import BLOCK, Check, Marker, OpenFile, StoredObject

CALLS = Counter("tidings_s3_requests_total", "Requests to S3, retries not counted", ["operation", "result"])

# A file over 8 MiB is sent in parts of 8 MiB. One upload holds one part in memory.
PART = 8 * 1024 * 1024
# Bytes of one range request, and therefore memory of one reader.
RANGE = 1024 * 1024
# Prefix of files within the bucket's prefix; the marker is outside, so that a lifecycle rule can name the files alone.
FILES = "files/"
# Seconds. A call, with its up to three attempts, must end within `CALL_SECONDS`.
CONNECT_SECONDS, READ_SECONDS, CALL_SECONDS = 5.0, 20.0, 60.0
TRIES = 3
# Connections of a process to one bucket, for uploads, downloads and other calls; further calls wait.
CONNECTIONS = 64
_PAGE = 1000
_MISSING = {"NoSuchKey", "NotFound", "404"}
_ERRORS = (
    botocore.exceptions.BotoCoreError,
    botocore.exceptions.ClientError,
    aiohttp.ClientError,
    TimeoutError,
    OSError,
)


class _Missing(Exception):
    """The object does not exist."""


class S3Store:
    """Files of an installation in a bucket."""

    is_local = False

    def __init__(self, settings: S3Settings) -> None:
        self.expected: Marker | None = None
        self._settings = settings
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._opened: Any = None

    @property
    def location(self) -> str:
        """Bucket and prefix, for error texts."""
        return f"s3://{self._settings.bucket}/{self._settings.prefix}"

    def location_of(self, name: str) -> str:
        """Return the `s3:` URL of a file."""
        return f"s3://{self._settings.bucket}/{self._key(name)}"

    def prepare(self) -> None:
        """Do nothing: the operator makes the bucket."""

    async def close(self) -> None:
        """Close the connections."""
        async with self._opening:
            self._opened = None
            await self._stack.aclose()

    async def write(self, chunks: AsyncIterable[bytes], *, limit: int, check: Check | None = None) -> StoredObject:
        """Implement `FileStore.write`. The object appears when all of it has arrived."""
        upload = _Upload(self._call, self._object(secrets.token_hex(16)), self._settings.encryption)
        held, size, digest = bytearray(), 0, hashlib.sha256()
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise FileTooLarge(limit)
                held += chunk
                if check is not None and len(held) >= BLOCK:
                    check(bytes(held[:BLOCK]))
                    check = None
                while len(held) > PART:
                    part = bytes(held[:PART])
                    del held[:PART]
                    await asyncio.to_thread(digest.update, part)
                    await upload.add(part)
            if not size:
                raise FileEmpty
            if check is not None:
                check(bytes(held[:BLOCK]))
            await asyncio.to_thread(digest.update, held)
            await upload.finish(bytes(held))
        except _Missing:
            await upload.abort()
            raise StoreUnavailable(f"{self.location}: the upload was aborted before its completion") from None
        except BaseException:
            await upload.abort()
            raise
        store.WRITTEN.inc(size)
        return StoredObject(upload.name, size, digest.hexdigest())

    async def open(self, name: str) -> OpenFile:
        """Implement `FileStore.open`; reads one range, so that a missing file is noticed."""
        reader = _Reader(self._read_range, self._key(name))
        try:
            size = await reader.begin()
        except _Missing:
            # In another bucket, a missing file means nothing.
            await self._require()
            raise FileGone from None
        return OpenFile(size, reader)

    async def delete(self, names: Iterable[str]) -> int:
        """Implement `FileStore.delete`; returns the number of names, as S3 does not report which existed."""
        keys = []
        for name in names:
            with contextlib.suppress(FileGone):
                keys.append(self._key(name))
        for start in range(0, len(keys), _PAGE):
            objects = [{"Key": key} for key in keys[start : start + _PAGE]]
            response = await self._call(
                "delete_objects", Bucket=self._settings.bucket, Delete={"Objects": objects, "Quiet": True}
            )
            if errors := response.get("Errors"):
                raise StoreUnavailable(f"{self.location}: {errors[0].get('Code')} at a deletion")
        return len(keys)

    async def list_old(self, before: float) -> AsyncIterator[list[str]]:
        """Implement `FileStore.list_old`. Also aborts unfinished uploads that were started before that time."""
        await self._require()
        await self._abort_old(before)
        prefix = self._settings.prefix + FILES
        more: dict[str, Any] = {}
        while True:
            response = await self._call("list_objects_v2", Bucket=self._settings.bucket, Prefix=prefix, **more)
            found = [
                entry["Key"].removeprefix(prefix)
                for entry in response.get("Contents", ())
                if entry["LastModified"].timestamp() < before
            ]
            if found:
                yield found
            if not response.get("IsTruncated"):
                return
            more = {"ContinuationToken": response["NextContinuationToken"]}

    async def has_room(self) -> bool:
        """Return true: a bucket has no size limit."""
        return True

    async def has_any(self, names: Sequence[str]) -> bool:
        """Return whether one of these files exists. Raises `StoreUnavailable`."""
        for name in names:
            with contextlib.suppress(_Missing, FileGone):
                await self._call("head_object", **self._object(name))
                return True
        return False

    async def read_marker(self) -> Marker | None:
        """Return the marker; `None` when there is none. Raises `StoreUnavailable`."""
        try:
            content, _ = await self._read_range(self._settings.prefix + store.MARKER, 0, 4096)
        except _Missing:
            return None
        return store.decode_marker(content)

    async def write_marker(self, content: Marker) -> None:
        """Write a marker, or replace it. Raises `StoreUnavailable`."""
        where = {"Bucket": self._settings.bucket, "Key": self._settings.prefix + store.MARKER}
        await self._call("put_object", **where, Body=store.encode_marker(content), **self._settings.encryption)

    async def lifecycle(self) -> Sequence[Any]:
        """Return the enabled lifecycle rules of the bucket. Raises `StoreUnavailable`, also without the right to read
        them.
        """
        try:
            response = await self._call("get_bucket_lifecycle_configuration", Bucket=self._settings.bucket)
        except _Missing:
            return ()
        return [rule for rule in response.get("Rules", ()) if rule.get("Status") == "Enabled"]

    @property
    def files_prefix(self) -> str:
        """Prefix of the keys of all files."""
        return self._settings.prefix + FILES

    async def _require(self) -> None:
        if self.expected is not None and await self.read_marker() != self.expected:
            raise StoreUnavailable(f"{self.location} has no marker, or not the recorded one")

    async def _abort_old(self, before: float) -> None:
        bucket, prefix = self._settings.bucket, self._settings.prefix + FILES
        response = await self._call("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
        for found in response.get("Uploads", ()):
            if found["Initiated"].timestamp() < before:
                with contextlib.suppress(_Missing):
                    upload = {"Key": found["Key"], "UploadId": found["UploadId"]}
                    await self._call("abort_multipart_upload", Bucket=bucket, **upload)

    async def _read_range(self, key: str, start: int, size: int) -> tuple[bytes, int]:
        """Return (at most `size` bytes from `start`; size of the whole object in bytes).

        Retries when the response breaks off. Raises `_Missing` and `StoreUnavailable`.
        """
        where = {"Bucket": self._settings.bucket, "Key": key, "Range": f"bytes={start}-{start + size - 1}"}
        for attempt in range(1, TRIES + 1):
            response = await self._call("get_object", **where)
            try:
                async with asyncio.timeout(CALL_SECONDS), response["Body"] as body:
                    content = await body.read()
            except _ERRORS as error:
                if attempt == TRIES:
                    raise StoreUnavailable(f"{self.location}: {type(error).__name__}") from error
                continue
            return content, int(response["ContentRange"].rpartition("/")[2])
        raise AssertionError("the last try returns or raises")

    async def _call(self, operation: str, **parameters: Any) -> Any:
        """Return the response of S3. Raises `_Missing` and `StoreUnavailable`."""
        result = "failed"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                client = await self._client()
                response = await getattr(client, operation)(**parameters)
            result = "done"
            return response
        except botocore.exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING or code in {"NoSuchUpload", "NoSuchLifecycleConfiguration"}:
                result = "missing"
                raise _Missing from None
            raise StoreUnavailable(f"{self.location}: {operation}: {code or type(error).__name__}") from error
        except _ERRORS as error:
            raise StoreUnavailable(f"{self.location}: {operation}: {type(error).__name__}") from error
        finally:
            CALLS.labels(operation, result).inc()

    async def _client(self) -> Any:
        async with self._opening:
            if self._opened is None:
                settings = self._settings
                config = AioConfig(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    max_pool_connections=CONNECTIONS,
                    retries={"mode": "standard", "total_max_attempts": TRIES},
                    s3={"addressing_style": "path" if settings.endpoint else "auto"},
                )
                given: dict[str, Any] = {"config": config, "region_name": settings.region or None}
                if settings.endpoint:
                    given["endpoint_url"] = settings.endpoint
                if settings.authorities:
                    given["verify"] = settings.authorities
                if settings.access_key_id:
                    given["aws_access_key_id"] = settings.access_key_id
                    given["aws_secret_access_key"] = settings.secret_access_key
                self._opened = await self._stack.enter_async_context(get_session().create_client("s3", **given))
            return self._opened

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._settings.bucket, "Key": self._key(name)}

    def _key(self, name: str) -> str:
        """Return the key of a file. Raises `FileGone` for text that cannot be the name of one."""
        if not name.isascii() or not name.isalnum():
            raise FileGone
        return self._settings.prefix + FILES + name


class _Upload:
    """One object that is being written: in one request, or in parts once there is more than one."""

    def __init__(self, call: Callable[..., Any], where: dict[str, str], encryption: dict[str, str]) -> None:
        self.name = where["Key"].rpartition("/")[2]
        self._call = call
        self._where = where
        self._encryption = encryption
        self._upload = ""
        self._parts: list[dict[str, Any]] = []

    async def add(self, part: bytes) -> None:
        """Send a part that is not the last."""
        if not self._upload:
            response = await self._call("create_multipart_upload", **self._where, **self._encryption)
            self._upload = response["UploadId"]
        number = len(self._parts) + 1
        response = await self._call("upload_part", **self._where, UploadId=self._upload, PartNumber=number, Body=part)
        self._parts.append({"PartNumber": number, "ETag": response["ETag"]})

    async def finish(self, last: bytes) -> None:
        """Send the rest; the object exists when this returns."""
        if not self._upload:
            await self._call("put_object", **self._where, Body=last, **self._encryption)
            return
        await self.add(last)
        parts = {"Parts": self._parts}
        await self._call("complete_multipart_upload", **self._where, UploadId=self._upload, MultipartUpload=parts)

    async def abort(self) -> None:
        """Discard the parts that were sent. Parts that cannot be discarded now are aborted later by `list_old`."""
        if self._upload:
            aborting = asyncio.ensure_future(self._call("abort_multipart_upload", **self._where, UploadId=self._upload))
            with contextlib.suppress(StoreUnavailable, _Missing, asyncio.CancelledError):
                await asyncio.shield(aborting)


class _Reader:
    """An object that is read by ranges, so that a slow client occupies no connection."""

    def __init__(self, read_range: Callable[[str, int, int], Any], key: str) -> None:
        self._read_range = read_range
        self._key = key
        self._held = b""
        self._at = 0
        self._size = 0

    async def begin(self) -> int:
        """Read the first range; returns the size of the object in bytes. Raises `_Missing` and `StoreUnavailable`."""
        self._held, self._size = await self._read_range(self._key, 0, RANGE)
        self._at = len(self._held)
        return self._size

    async def read(self, size: int) -> bytes:
        """Implement `Reader.read`. Raises `StoreUnavailable`, also when the object was deleted since."""
        while len(self._held) < size and self._at < self._size:
            try:
                more, _ = await self._read_range(self._key, self._at, RANGE)
            except _Missing:
                raise StoreUnavailable("the object was deleted during the read") from None
            if not more:
                break
            self._at += len(more)
            self._held += more
        found, self._held = self._held[:size], self._held[size:]
        return found

    async def close(self) -> None:
        """Drop the buffer; no connection is held."""
        self._held, self._at = b"", self._size
