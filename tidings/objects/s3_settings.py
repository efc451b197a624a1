"""Settings of a bucket; media and blobs have separate ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from tidings.config import env
from tidings.net import exposure
from tidings.secrets import secret_sources

# Variables, in the order of `_WORDS`.
MEDIA = (
    "TIDINGS_MEDIA_S3_BUCKET",
    "TIDINGS_MEDIA_S3_PREFIX",
    "TIDINGS_MEDIA_S3_ENDPOINT",
    "TIDINGS_MEDIA_S3_REGION",
    "TIDINGS_MEDIA_S3_ACCESS_KEY_ID",
    "TIDINGS_MEDIA_S3_SECRET_ACCESS_KEY",
    "TIDINGS_MEDIA_S3_SSE",
    "TIDINGS_MEDIA_S3_SSE_KEY",
    "TIDINGS_MEDIA_S3_CA",
)
BLOBS = (
    "TIDINGS_NETWORK_BLOB_S3_BUCKET",
    "TIDINGS_NETWORK_BLOB_S3_PREFIX",
    "TIDINGS_NETWORK_BLOB_S3_ENDPOINT",
    "TIDINGS_NETWORK_BLOB_S3_REGION",
    "TIDINGS_NETWORK_BLOB_S3_ACCESS_KEY_ID",
    "TIDINGS_NETWORK_BLOB_S3_SECRET_ACCESS_KEY",
    "TIDINGS_NETWORK_BLOB_S3_SSE",
    "TIDINGS_NETWORK_BLOB_S3_SSE_KEY",
    "TIDINGS_NETWORK_BLOB_S3_CA",
)
_WORDS = ("BUCKET", "PREFIX", "ENDPOINT", "REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SSE", "SSE_KEY", "CA")
ENCRYPTIONS = ("AES256", "aws:kms")


@dataclasses.dataclass(frozen=True, slots=True)
class S3Settings:
    """Location and use of a bucket."""

    bucket: str
    # Prefix of all keys; empty, or with a slash at its end.
    prefix: str = ""
    # URL of a server other than AWS; empty for AWS.
    endpoint: str = ""
    # Empty for that of the environment.
    region: str = ""
    # Empty for the credentials of the environment: `AWS_*`, its files, the role of the task or the instance.
    access_key_id: str = ""
    secret_access_key: str = dataclasses.field(default="", repr=False)
    # `AES256` or `aws:kms`; empty for the bucket's default.
    sse: str = ""
    # Id of a KMS key; empty for the default key.
    sse_key: str = ""
    # File of authorities that verify the endpoint; empty for the system's.
    authorities: str = ""

    @property
    def encryption(self) -> dict[str, str]:
        """Encryption parameters of a call that writes."""
        found = {"ServerSideEncryption": self.sse} if self.sse else {}
        return found | ({"SSEKMSKeyId": self.sse_key} if self.sse_key else {})


def read_s3(variables: Mapping[str, str], names: tuple[str, ...]) -> S3Settings | None:
    """Return the bucket that these variables set; `None` when they set none. Raises `env.mistake`."""
    name = dict(zip(_WORDS, names, strict=True))
    given = {word: variables.get(variable, "") for word, variable in name.items()}
    given["SECRET_ACCESS_KEY"] = secret_sources.given(variables, name["SECRET_ACCESS_KEY"])
    if not given["BUCKET"]:
        if wrong := [name[word] for word, value in given.items() if value]:
            raise env.mistake(f"{wrong[0]} is set, and {name['BUCKET']} is not")
        return None
    if bool(given["ACCESS_KEY_ID"]) != bool(given["SECRET_ACCESS_KEY"]):
        raise env.mistake(f"{name['ACCESS_KEY_ID']} and {name['SECRET_ACCESS_KEY']} must be set together")
    if given["SSE"] and given["SSE"] not in ENCRYPTIONS:
        raise env.mistake(f"{name['SSE']}={given['SSE']!r} is none of {', '.join(ENCRYPTIONS)}")
    if given["SSE_KEY"] and given["SSE"] != "aws:kms":
        raise env.mistake(f"{name['SSE_KEY']} requires {name['SSE']}=aws:kms")
    if given["ENDPOINT"]:
        _require_endpoint(given["ENDPOINT"], name["ENDPOINT"], exposure.read_allowed(variables))
    prefix = given["PREFIX"].strip("/")
    return S3Settings(
        bucket=given["BUCKET"],
        prefix=f"{prefix}/" if prefix else "",
        endpoint=given["ENDPOINT"],
        region=given["REGION"],
        access_key_id=given["ACCESS_KEY_ID"],
        secret_access_key=given["SECRET_ACCESS_KEY"],
        sse=given["SSE"],
        sse_key=given["SSE_KEY"],
        authorities=given["CA"],
    )


def _require_endpoint(url: str, name: str, allowed: frozenset[str]) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise env.mistake(f"{name}={url!r} is not a URL like https://s3.example")
    secured = parts.scheme == "https"
    exposure.require([exposure.Endpoint(exposure.FILES, name, host, secured, "an https:// URL")], allowed)


MediaBucket = Annotated[S3Settings | None, env.computed(lambda data: read_s3(data["variables"], MEDIA))]
BlobBucket = Annotated[S3Settings | None, env.computed(lambda data: read_s3(data["variables"], BLOBS))]
