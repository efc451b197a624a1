"""What goes wrong with media in the Coreapp, named by what the caller must do.

MediaFailed      tell the business: this message cannot be sent
SourceFailed     the same for one file, whichever messages name it: the caller knows the field
DiskAway         try again: the disk is full, or cannot be used now, which says nothing of the file
DownloadFailed   try again, or when that is no use, tell the business that the file cannot be had
"""

from __future__ import annotations

from coreapp.errors import CoreappError


class MediaFailed(CoreappError):
    """A file that goes with a message cannot be had. code: one of the API's; details: which field, and why."""

    def __init__(self, code: int, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


class SourceFailed(CoreappError):
    """A file cannot be had. code: one of the API's; part: the field of the media object that is to blame."""

    def __init__(self, code: int, part: str, why: str) -> None:
        super().__init__(f"{code}: {part}: {why}")
        self.code = code
        self.part = part
        self.why = why


class DiskAway(CoreappError):
    """The disk for media has no room, or cannot be written now; the text is for the operator."""


class DownloadFailed(CoreappError):
    """What a recipient sent cannot be fetched or read. is_final: another try would not help."""

    def __init__(self, details: str, *, is_final: bool) -> None:
        super().__init__(details)
        self.is_final = is_final
