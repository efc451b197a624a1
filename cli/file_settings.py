"""Settings of where the files of an installation are: apart from the others, since they are read with the network's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cli.settings import TableSettings
from network.settings import Blobs, read_blobs
from tidings.objects.s3_settings import MediaBucket
from tidings.runtime import env, settings


class FilesSettings(TableSettings):
    """Where the files are. media_dir, media_bucket: of the business; blobs: of the network."""

    media_dir: Annotated[Path, settings.below_data_dir("media")] = env.variable("TIDINGS_MEDIA_DIR", None)
    media_bucket: MediaBucket = env.MADE
    blobs: Annotated[Blobs, env.made(read_blobs)] = env.MADE
