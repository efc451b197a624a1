"""Errors of the Coreapp, named by what the caller must do.

CoreappError
├── RequestRefused        report it to the caller: it carries the API's code and the details
├── KeyInUse              use another idempotency key, or wait for the response to the first request
├── ChangeRefused         do not retry: the database refuses the change at every attempt
└── OutcomeUnknown        do not retry: the change may be on disk

Errors of the network are defined in `tidings.client.errors`.
"""


class CoreappError(Exception):
    """Base of every error that the Coreapp raises itself."""


class RequestRefused(CoreappError):
    """A Webapp's request was not carried out."""

    def __init__(self, code: int, details: str, retry_after: int = 0) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code  # one of the API's error codes
        self.details = details
        self.retry_after = retry_after  # seconds, 0 for no hint


class KeyInUse(CoreappError):
    """The idempotency key belongs to a request with another body, or to one that is still in progress."""

    def __init__(self, *, in_progress: bool) -> None:
        super().__init__("in progress" if in_progress else "used for another request")
        self.in_progress = in_progress


class ChangeRefused(CoreappError):
    """The database refuses this change, or the change follows a refused one about the same rows. Nothing of it is on
    disk.
    """


class OutcomeUnknown(CoreappError):
    """A commit was tried and its outcome is unknown: the lease was lost before the next try, or the database is still
    unreachable.
    """
