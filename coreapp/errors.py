"""What goes wrong in the Coreapp, named by what the caller must do.

CoreappError
├── Refused               tell whoever asked: it carries the API's code and the details
├── KeyInUse              take another idempotency key, or wait for the answer of the first request
└── OutcomeUnknown        do not try again: it may be on disk

What goes wrong with the network has errors of its own: `tidings.client.errors`.
"""


class CoreappError(Exception):
    """The base of every error that the Coreapp raises itself."""


class Refused(CoreappError):
    """A question of the Webapp that is not done. code: one of the API's; retry_after: seconds, 0 for never mind."""

    def __init__(self, code: int, details: str, retry_after: int = 0) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details
        self.retry_after = retry_after


class KeyInUse(CoreappError):
    """The idempotency key belongs to a request with another body, or to one that has no answer yet."""

    def __init__(self, *, in_progress: bool) -> None:
        super().__init__("in progress" if in_progress else "used for another request")
        self.in_progress = in_progress


class OutcomeUnknown(CoreappError):
    """A commit was tried, and whether it succeeded cannot be known: not any more, since the lease was lost before the
    next try, or not yet, while the database is away."""
