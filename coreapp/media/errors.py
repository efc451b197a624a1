"""Media errors of the Coreapp, named by what the caller must do.

MediaFailed      report to the business: this message cannot be sent
SourceFailed     the same for one file, for all messages that name it; the caller knows the field
DiskUnavailable         retry: the disk is full or unusable now, which is no fault of the file
DownloadFailed   retry, or if that is no use, report to the business that the file is not available
"""

from __future__ import annotations

from coreapp.errors import CoreappError


class MediaFailed(CoreappError):
    """A file of a message is not available."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code  # one of the API's error codes
        self.details = details  # field and reason


class SourceFailed(CoreappError):
    """A file is not available."""

    def __init__(self, code: int, part: str, why: str) -> None:
        super().__init__(f"{code}: {part}: {why}")
        self.code = code  # one of the API's error codes
        self.part = part  # field of the media object that caused the error
        self.why = why


class DiskUnavailable(CoreappError):
    """The disk for media has no room or cannot be written now. The text is for the operator."""


class DownloadFailed(CoreappError):
    """A file from a recipient cannot be fetched or read."""

    def __init__(self, details: str, *, is_final: bool) -> None:
        super().__init__(details)
        self.is_final = is_final  # whether a retry is useless
