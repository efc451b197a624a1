"""Errors of end-to-end encryption, each with what the caller must do.

E2EEError
├── InvalidMessage            drop it; nothing has changed
│   ├── TooFarAhead           drop it; if further ones arrive, start a new session
│   └── OverBudget            likewise: on a new session the message is cheap
├── DuplicateMessage          acknowledge it again, show nothing
├── NoSession                 set a session up first; for a group, get or make a sender key
│   ├── UnknownPreKey         our private pre-key is gone: respond with a session of our own
│   ├── KnownBaseKey          the session was opened before and is gone: respond with a session of our own
│   └── TooManySetUps         likewise, until stored base keys expire with their signed pre-key
├── UntrustedIdentity         ask whether the new identity is wanted, then start with no existing record
├── InvalidKey                discard the bundle or the key
├── InvalidSignature          discard the bundle: it was forged by its server or its sender
├── PostQuantumRequired       fetch a bundle that has a Kyber pre-key, or do not send
└── CorruptState              a stored blob cannot be read: start a new session, check the storage
    ├── UnknownSealingKey     load the data key of that id into the keyring
    └── UnknownMasterKey      provide the master key of that id
"""


class E2EEError(Exception):
    """Base class of every error that this package raises."""


class InvalidMessage(E2EEError):
    """The message is malformed or does not authenticate. No state has changed."""


class TooFarAhead(InvalidMessage):
    """The message is further ahead than the limit of its chain. No state has changed."""


class OverBudget(InvalidMessage):
    """The message requires more work than its sender's budget allows. No state has changed."""


class DuplicateMessage(E2EEError):
    """The key of this message was used, or dropped as too old, before. No state has changed."""


class NoSession(E2EEError):
    """The message belongs to no session: respond to it, or initiate one.

    For a group message: its chain is unknown. Keep the message, and request the distribution message from its sender.
    """


class UnknownPreKey(NoSession):
    """The message names one of our pre-keys that the caller no longer has."""


class KnownBaseKey(NoSession):
    """The message would open a session that was open before and is no longer stored.

    It is a replay, or its sender continues a session that we have dropped.
    """


class TooManySetUps(NoSession):
    """The message would open a session without a one-time pre-key, and no more base keys can be stored."""


class UntrustedIdentity(E2EEError):
    """The peer's identity key differs from the record's."""

    def __init__(self, identity_key: bytes) -> None:
        super().__init__("the peer's identity key has changed")
        self.identity_key = identity_key  # the new one, 33 typed bytes


class InvalidKey(E2EEError):
    """A key has the wrong length, type or value (including an all-zero shared secret)."""


class InvalidSignature(E2EEError):
    """A pre-key is not signed by the identity that offers it."""


class PostQuantumRequired(E2EEError):
    """A set-up without Kyber was offered where one with Kyber is required."""


class CorruptState(E2EEError):
    """A stored blob is damaged, belongs to another context, or has an unknown version."""


class UnknownSealingKey(CorruptState):
    """The blob names a data key that is not in the keyring."""

    def __init__(self, key_id: int) -> None:
        super().__init__(f"no data key {key_id} in the keyring")
        self.key_id = key_id


class UnknownMasterKey(CorruptState):
    """A data key is wrapped under a master key that is not available."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no master key {key_id}")
        self.key_id = key_id  # id of the missing master key
