"""`tidings files`: compares file stores with those that the databases record, or records another store."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Annotated

from cli import guard
from cli.settings import TableSettings
from network.settings import BlobSettings, read_blobs
from tidings.config import env
from tidings.installation import settings
from tidings.objects import identity
from tidings.objects.identity import BLOBS, MEDIA, WrongStore
from tidings.objects.s3_settings import MediaBucket
from tidings.objects.stores import open_store
from tidings.storage.database import Database


class FilesSettings(TableSettings):
    """Locations of the business's media and the network's blobs."""

    media_dir: Annotated[Path, settings.below_data_dir("media")] = env.variable("TIDINGS_MEDIA_DIR", None)
    media_bucket: MediaBucket = env.COMPUTED  # in the place of the directory, if one is set
    blobs: Annotated[BlobSettings, env.computed(read_blobs)] = env.COMPUTED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the file store."""
    parser.add_argument(
        "action",
        choices=("status", "adopt"),
        help="compare the store with the database, or record the configured store in place of the old one",
    )
    parser.add_argument("store", choices=(MEDIA, BLOBS), help="files of the business, or of the network")
    parser.add_argument("--force", action="store_true", help="adopt a store that has the marker of another database")


def run(options: argparse.Namespace) -> int:
    """Read or change the database while the installation runs; its processes apply a change within seconds."""
    return asyncio.run(_run(options, FilesSettings.read(os.environ)))


async def _run(options: argparse.Namespace, settings: FilesSettings) -> int:
    family = {MEDIA: "business", BLOBS: "network"}[options.store]
    database = Database(settings.families[family], family)
    if options.store == MEDIA:
        store, of = open_store(settings.media_dir, settings.media_bucket), identity.of_media
    else:
        store, of = open_store(settings.blobs.directory, settings.blobs.bucket), identity.of_blobs
    try:
        recorded = of(database, store)
        if options.action == "adopt":
            await recorded.adopt(force=options.force)
        if not await recorded.is_recorded():
            raise guard.CommandFailure("the database records no store yet: the first start of a process records it")
        if wrong := await recorded.refresh():
            raise guard.CommandFailure(wrong)
    except WrongStore as error:
        raise guard.CommandFailure(str(error)) from None
    except OSError as error:
        raise guard.CommandFailure(f"{store.location}: {error.strerror or error}") from None
    finally:
        await store.close()
        await database.close()
    print(f"{options.store}: {store.location} is the recorded one")
    return 0
