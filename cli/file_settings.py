"""Settings for the file stores of an installation; a separate module because it imports the network's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cli.settings import TableSettings
from network.settings import BlobSettings, read_blobs
from tidings.config import env
from tidings.installation import settings
from tidings.objects.s3_settings import MediaBucket


class FilesSettings(TableSettings):
    """Locations of the business's media and the network's blobs."""

    media_dir: Annotated[Path, settings.below_data_dir("media")] = env.variable("TIDINGS_MEDIA_DIR", None)
    media_bucket: MediaBucket = env.MADE  # in the place of the directory, if one is set
    blobs: Annotated[BlobSettings, env.made(read_blobs)] = env.MADE
