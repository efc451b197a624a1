"""Errors of a recipient besides those of any device, each with what the caller can do.

tidings.client.errors.ClientError: see there what goes wrong with the network
└── HandsetError
    ├── NoSuchNumber     correct the number that was to be sent to
    ├── NotStored        nothing was sent; try again
    ├── BadFile          choose another file to send
    ├── CannotKeep       make room on the disk, or have files kept elsewhere
    └── AlreadyRunning   use the process that runs, or end it first
"""

from tidings.client.errors import ClientError


class HandsetError(ClientError):
    """The base of the errors of this package's own; `str()` is one line for people."""


class NoSuchNumber(HandsetError):
    """The number to send to is not registered on the network, or its keys cannot be used."""


class NotStored(HandsetError):
    """The store failed before the message was safe; it will not be sent."""


class BadFile(HandsetError):
    """The file cannot be read, or not be sent as what it should be."""


class CannotKeep(HandsetError):
    """The file cannot be written where it should be kept."""


class AlreadyRunning(HandsetError):
    """Another process runs these devices; two of them would break each other's sessions."""
