"""Everything that goes wrong in end-to-end encryption, named by what the caller must do.

E2EEError
├── InvalidMessage            drop it; nothing has changed
│   ├── TooFarAhead           drop it; if they keep coming, start a new session
│   └── OverBudget            the same: on a new session it is cheap
├── DuplicateMessage          acknowledge it again, show nothing
├── NoSession                 set a session up first; for a group, get or make a sender key
│   └── UnknownPreKey         our private pre-key is gone: answer with a session of our own
├── UntrustedIdentity         ask whether the new identity is wanted, then start with no existing record
├── InvalidKey                throw the bundle or the key away
├── InvalidSignature          throw the bundle away, its server or its sender lies
├── PostQuantumRequired       fetch a bundle that has a Kyber pre-key, or do not send
└── CorruptState              a stored blob cannot be read: start a new session, look at the storage
    ├── UnknownSealingKey     load the data key of that id into the keyring
    └── UnknownMasterKey      look for the master key of that id where it is kept
"""


class E2EEError(Exception):
    """The base of every error that leaves this package."""


class InvalidMessage(E2EEError):
    """The message is malformed or does not authenticate. No state has changed."""


class TooFarAhead(InvalidMessage):
    """The message is further ahead than a chain is followed. No state has changed."""


class OverBudget(InvalidMessage):
    """The message asks for more work than its sender may still cause. No state has changed."""


class DuplicateMessage(E2EEError):
    """The key of this message was used (or dropped as too old) before. No state has changed."""


class NoSession(E2EEError):
    """There is no session for this message: respond to it, or initiate one.

    For a group message: its chain is unknown, so keep it and ask its sender for the distribution message.
    """


class UnknownPreKey(NoSession):
    """The message names a pre-key of ours that the caller no longer has."""


class UntrustedIdentity(E2EEError):
    """The peer's identity key is another one than the record's.

    `identity_key` is the new one, 33 typed bytes.
    """

    def __init__(self, identity_key: bytes) -> None:
        super().__init__("the peer's identity key has changed")
        self.identity_key = identity_key


class InvalidKey(E2EEError):
    """A key has the wrong length, type or value (a shared secret of zeros included)."""


class InvalidSignature(E2EEError):
    """A pre-key is not signed by the identity that offers it."""


class PostQuantumRequired(E2EEError):
    """A set-up without Kyber was offered where one with Kyber is demanded."""


class CorruptState(E2EEError):
    """A stored blob is damaged, belongs elsewhere, or is of a version that this code does not know."""


class UnknownSealingKey(CorruptState):
    """The blob names a data key that is not in the keyring. `key_id` is its number."""

    def __init__(self, key_id: int) -> None:
        super().__init__(f"no data key {key_id} in the keyring")
        self.key_id = key_id


class UnknownMasterKey(CorruptState):
    """A data key is wrapped under a master key that we do not have. key_id: of that one."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no master key {key_id}")
        self.key_id = key_id
