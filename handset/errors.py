"""Everything that goes wrong for a recipient, named by what the caller must do.

HandsetError
├── NetworkAway      wait, then try again
├── Unauthorized     register the number (again)
├── WrongCode        ask for the code again
├── TooSoon          use the code that was sent before, or wait
├── BadNumber        correct the number
├── NoSuchNumber     correct the number that was to be sent to
├── NoSuchGroup      choose a group that one is in, or correct the code
├── NotAdmin         ask an admin of the group
├── NotStored        nothing was sent; try again
├── BadFile          choose another file to send
├── FileLost         ask the sender to send the file again
├── CannotKeep       make room on the disk, or have files kept elsewhere
├── NetworkFull      try again much later; the network's operator has to make room
├── AlreadyRunning   use the process that runs, or end it first
└── Rejected         a mistake on our side: look at the detail
"""


class HandsetError(Exception):
    """The base of every error that leaves this package; `str()` is one line for people."""


class NetworkAway(HandsetError):
    """The network cannot be reached, or is too busy."""


class Unauthorized(HandsetError):
    """The network does not know this token, or this registration key, (any more)."""


class WrongCode(HandsetError):
    """The registration code is wrong or has run out."""


class TooSoon(HandsetError):
    """The network sends no new code yet."""


class BadNumber(HandsetError):
    """This is not a phone number that can be registered."""


class NoSuchNumber(HandsetError):
    """The number to send to is not registered on the network, or its keys cannot be used."""


class NoSuchGroup(HandsetError):
    """There is no such group or invitation, or one is not in that group."""


class NotAdmin(HandsetError):
    """Only admins of the group may do this."""


class NotStored(HandsetError):
    """The store failed before the message was safe; it will not be sent."""


class BadFile(HandsetError):
    """The file cannot be read, or not be sent as what it should be."""


class FileLost(HandsetError):
    """The network does not have the file (any more), or it is not the one that the message says."""


class CannotKeep(HandsetError):
    """The file cannot be written where it should be kept."""


class NetworkFull(HandsetError):
    """The network has no room for another file."""


class AlreadyRunning(HandsetError):
    """Another process runs these devices; two of them would break each other's sessions."""


class Rejected(HandsetError):
    """The network refused a request of ours as malformed."""
