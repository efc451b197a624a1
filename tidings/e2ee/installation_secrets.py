"""Secrets of the installation in its database, sealed: private keys of certificates, credentials of media providers,
the webhook's address.

Webapps and Coreapps have the key, which is not the master key: who reads what was set reads no message.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from tidings.e2ee import errors, master_keys, sealing

# Of what was sealed before keys had ids of their own.
_FIRST_ID = 1
# Ids of others: no counted one is among them.
_NAMED = 1 << 31
_SEALED_TEXT = "sealed:"
# Names under which some are sealed.
WEBHOOK_URL = "webhook url"
WEBHOOK_SECRETS = "webhook secrets"


class UnreadableSecret(Exception):
    """A secret that was sealed under another key, or is damaged: it has to be set again."""


def provider_label(name: str) -> str:
    """The name under which the credentials of a media provider are sealed."""
    return f"media provider {name}"


class SecretSealer:
    """Sealing under the settings keys: the first seals, all open. `owner` and `name` say what a blob is: it opens under
    the same ones only."""

    def __init__(self, *keys: bytes, read: Callable[[], Sequence[bytes]] | None = None) -> None:
        """read(): the keys as they are by now. It is asked before something is sealed, and when a key is missing."""
        self._read = read
        self._keys: Sequence[bytes] = ()
        self._set(keys)

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return self.ids[0]

    @property
    def ids(self) -> Sequence[str]:
        return [master_keys.key_id(key) for key in self._keys]

    def reload(self) -> None:
        """Look whether there are other keys by now. Raises what `read` raises."""
        if self._read is not None:
            self._set(self._read())

    def seal(self, owner: str, name: str, content: bytes) -> bytes:
        """`content` as it may be stored. Raises what `read` raises."""
        self.reload()
        return self._sealers[self._current].seal(content, context=_context(owner, name))

    def open(self, owner: str, name: str, sealed: bytes) -> bytes:
        """What `seal` was given. Raises `UnreadableSecret`, and what `read` raises."""
        number = int.from_bytes(sealed[1:5], "big")
        if number not in self._sealers and number != _FIRST_ID:
            self.reload()
        tried = self._first if number == _FIRST_ID else [self._sealers.get(number)]
        failure: errors.CorruptState = errors.UnknownSealingKey(number)
        for sealer in filter(None, tried):
            try:
                return sealer.open(sealed, _context(owner, name))
            except errors.CorruptState as error:
                failure = error
        raise UnreadableSecret(f"{name} of {owner}: {failure}") from failure

    def needs_current(self, sealed: bytes) -> bool:
        """Is it the current key that opens this?"""
        return int.from_bytes(sealed[1:5], "big") == self._current

    def seal_text(self, owner: str, name: str, text: str) -> str:
        """The same in characters; an empty text stays."""
        if not text:
            return ""
        return _SEALED_TEXT + base64.b64encode(self.seal(owner, name, text.encode())).decode()

    def open_text(self, owner: str, name: str, text: str) -> str:
        """What `seal_text` was given, and what was stored before it was sealed. Raises as `open` does."""
        if not is_sealed(text):
            return text
        return self.open(owner, name, _blob(text)).decode()

    def text_needs_current(self, text: str) -> bool:
        """As `needs_current`; an empty text needs nothing."""
        return not text or (is_sealed(text) and self.needs_current(_blob(text)))

    def _set(self, keys: Sequence[bytes]) -> None:
        if tuple(keys) == self._keys:
            return
        self._keys = tuple(keys)
        numbers = [_NAMED | int(master_keys.key_id(key)[:8], 16) for key in keys]
        self._current = numbers[0]
        self._sealers = {
            number: sealing.Sealer(sealing.Keyring({number: key}), cache_size=64)
            for number, key in zip(numbers, keys, strict=True)
        }
        self._first = [sealing.Sealer(sealing.Keyring({_FIRST_ID: key}), cache_size=64) for key in keys]


def is_sealed(text: str) -> bool:
    """Was it made by `seal_text`?"""
    return text.startswith(_SEALED_TEXT)


def _blob(text: str) -> bytes:
    try:
        return base64.b64decode(text.removeprefix(_SEALED_TEXT), validate=True)
    except ValueError as error:
        raise UnreadableSecret("a sealed text is damaged") from error


def _context(owner: str, name: str) -> sealing.Context:
    return (owner, "", "installation", name)
