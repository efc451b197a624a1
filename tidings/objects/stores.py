"""Open the file store that the settings name: a directory or a bucket."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import cast

from tidings.config.env import SettingsError
from tidings.objects.directory import DirectoryStore
from tidings.objects.s3_settings import S3Settings
from tidings.objects.store import FileStore

_IMPLEMENTATION, _LIBRARY = "tidings.objects.s3", "aiobotocore"


def open_store(directory: Path, bucket: S3Settings | None, *, reserve: int = 0) -> FileStore:
    """Return the bucket's store if one is set, else the directory's.

    Raises `SettingsError` when the library for buckets is not installed.

    reserve: bytes that stay free on the disk of the directory.
    """
    if bucket is None:
        return DirectoryStore(directory, reserve=reserve)
    if importlib.util.find_spec(_LIBRARY) is None:
        raise SettingsError(
            f"the bucket {bucket.bucket} requires a library that is not installed: `pip install tidings[s3]`"
        )
    # Imported only here: it takes half a second, and is not installed everywhere.
    return cast(FileStore, importlib.import_module(_IMPLEMENTATION).S3Store(bucket))
