"""Errors of a handset in addition to those of any device, each with what the caller can do.

tidings.client.errors.ClientError: see there for errors of the network
└── HandsetError
    ├── NoSuchNumber     correct the recipient's number
    ├── NotStored        nothing was sent; try again
    ├── BadFile          choose another file to send
    ├── CannotKeep       free disk space, or save files in another directory
    ├── AlreadyRunning   use the process that runs, or stop it first
    ├── UnknownPhone     open the phone of the number first
    └── PageLimit        close a phone, or unblock a number
"""

from tidings.client.errors import ClientError


class HandsetError(ClientError):
    """Base class of the errors of this package. `str()` is one line for the user."""


class NoSuchNumber(HandsetError):
    """The recipient's number is not registered on the network, or its keys cannot be used."""


class NotStored(HandsetError):
    """The store failed before the message was committed. It will not be sent."""


class BadFile(HandsetError):
    """The file cannot be read, or cannot be sent as the requested kind."""


class CannotKeep(HandsetError):
    """The file cannot be written to the directory for saved files."""


class AlreadyRunning(HandsetError):
    """Another process runs these devices. Two processes would break each other's sessions."""


def taken(number: str, fleet: str) -> AlreadyRunning:
    """Return the error about a number whose device another fleet of the store has."""
    return AlreadyRunning(f"+{number} belongs to the {fleet} of this data directory")


class UnknownPhone(HandsetError):
    """No phone of this number is open on the page."""


class PageLimit(HandsetError):
    """The page runs as many phones, or a phone blocks as many numbers, as it may."""
