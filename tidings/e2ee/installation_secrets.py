"""Sealing of the installation's secrets in the database: private keys of certificates, credentials of media providers,
the webhook URL.

Webapps and Coreapps have its key. It is not the master key: access to these settings gives no access to messages.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from tidings.e2ee import errors, master_keys, sealing

# Key id in blobs from before keys had individual ids.
_FIRST_ID = 1
# Bit that marks an individual id; sequential ids never have it.
_NAMED = 1 << 31
_SEALED_TEXT = "sealed:"
# Names of sealed secrets.
WEBHOOK_URL = "webhook url"
WEBHOOK_SECRETS = "webhook secrets"


class UnreadableSecret(Exception):
    """A secret was sealed under another key, or is damaged: it has to be set again."""


def provider_label(name: str) -> str:
    """Return the name under which the credentials of a media provider are sealed."""
    return f"media provider {name}"


def cloud_callback_label(node_id: str) -> str:
    """Return the name under which the callback of an app, a WABA or a number in the Cloud API is sealed."""
    return f"cloud callback {node_id}"


class SecretSealer:
    """Sealer under the settings keys: the first key seals, all open.

    A blob is bound to its `owner` and `name`: it opens only under the same ones.
    """

    def __init__(self, *keys: bytes, read: Callable[[], Sequence[bytes]] | None = None) -> None:
        """Make a sealer.

        read: returns the current keys; called before each seal, and when a key is missing; None when the keys never
            change
        """
        self._read = read
        self._keys: Sequence[bytes] = ()
        self._set(keys)

    @property
    def current(self) -> str:
        """Return the id of the key that seals."""
        return self.ids[0]

    @property
    def ids(self) -> Sequence[str]:
        return [master_keys.key_id(key) for key in self._keys]

    def reload(self) -> None:
        """Read the keys again. Raises whatever `read` raises."""
        if self._read is not None:
            self._set(self._read())

    def seal(self, owner: str, name: str, content: bytes) -> bytes:
        """Return `content` sealed for storage. Raises whatever `read` raises."""
        self.reload()
        return self._sealers[self._current].seal(content, context=_context(owner, name))

    def open(self, owner: str, name: str, sealed: bytes) -> bytes:
        """Return the content of a sealed blob. Raises `UnreadableSecret`, and whatever `read` raises."""
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
        """Return whether the blob is sealed under the current key, without which it cannot be opened."""
        return int.from_bytes(sealed[1:5], "big") == self._current

    def seal_text(self, owner: str, name: str, text: str) -> str:
        """Return `text` sealed as text; an empty text stays empty."""
        if not text:
            return ""
        return _SEALED_TEXT + base64.b64encode(self.seal(owner, name, text.encode())).decode()

    def open_text(self, owner: str, name: str, text: str) -> str:
        """Return the content of a sealed text.

        Text that was stored unsealed is returned as it is. Raises as `open` does.
        """
        if not is_sealed(text):
            return text
        return self.open(owner, name, _blob(text)).decode()

    def text_needs_current(self, text: str) -> bool:
        """Return whether the text is empty, or sealed under the current key."""
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
    """Return whether the text was made by `seal_text`."""
    return text.startswith(_SEALED_TEXT)


def _blob(text: str) -> bytes:
    try:
        return base64.b64decode(text.removeprefix(_SEALED_TEXT), validate=True)
    except ValueError as error:
        raise UnreadableSecret("a sealed text is damaged") from error


def _context(owner: str, name: str) -> sealing.Context:
    return (owner, "", "installation", name)
