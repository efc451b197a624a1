"""Errors about files.

MediaError
├── UnusableType      the type is not accepted, or the bytes are not of it
├── FileTooLarge      the file is over the limit
├── FileEmpty         the file is empty
├── DiskFull          the disk is full, or nearly: the operator has to free space
├── StoreUnavailable  the file store is not mounted, or cannot be reached: try again; also an `OSError`
└── FileGone          the row exists and the file does not: it has to be uploaded again
"""

from __future__ import annotations


class MediaError(Exception):
    """Base of the errors about files; the text is for the business and names no path."""


class UnusableType(MediaError):
    """The type is not accepted, or the bytes are not of it."""


class FileTooLarge(MediaError):
    """The file is over the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the file is over the limit of {limit} bytes")
        # Bytes.
        self.limit = limit


class FileEmpty(MediaError):
    """The file is empty."""

    def __init__(self) -> None:
        super().__init__("the file is empty")


class DiskFull(MediaError):
    """The disk is full, or nearly."""

    def __init__(self) -> None:
        super().__init__("the disk for media is full")


class StoreUnavailable(MediaError, OSError):
    """The file store cannot be used now; files may exist all the same."""

    def __init__(self, why: str = "the directory of files has no marker, or not the recorded one"):
        super().__init__(why)


class FileGone(MediaError):
    """The file does not exist in the store."""

    def __init__(self) -> None:
        super().__init__("the file no longer exists")
