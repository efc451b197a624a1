"""Responses of an S3 server that the server of the other tests does not give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import botocore.exceptions
import pytest

from tidings.media.errors import StoreUnavailable
from tidings.objects.s3 import PART, S3Store
from tidings.objects.s3_settings import S3Settings


class ForgetfulClient:
    """Client of a server on which every multipart upload is aborted before its completion.

    A lifecycle rule or another process may do so. S3 responds the same when the response to a completion was lost, and
    the client repeats it.
    """

    async def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        return {"UploadId": "1"}

    async def upload_part(self, **_: Any) -> dict[str, str]:
        return {"ETag": "e"}

    async def complete_multipart_upload(self, **_: Any) -> None:
        raise botocore.exceptions.ClientError({"Error": {"Code": "NoSuchUpload"}}, "CompleteMultipartUpload")

    async def abort_multipart_upload(self, **_: Any) -> None:
        return None


async def test_an_upload_that_the_server_no_longer_knows_counts_as_an_outage() -> None:
    files = S3Store(S3Settings("bucket"))
    files._opened = ForgetfulClient()

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(PART + 1)

    with pytest.raises(StoreUnavailable):
        await files.write(pieces(), limit=2 * PART)
