"""Secrets of the installation in its database, sealed: private keys of certificates, credentials of media providers.

Webapps and Coreapps have the key, which is not the master key: who reads what was set reads no message.
"""

from __future__ import annotations

from tidings.e2ee import errors, sealing

_KEY_ID = 1


class UnreadableSecret(Exception):
    """A secret that was sealed under another key, or is damaged: it has to be set again."""


def provider_label(name: str) -> str:
    """The name under which the credentials of a media provider are sealed."""
    return f"media provider {name}"


class SecretSealer:
    """Sealing under the settings key. `owner` and `name` say what a blob is: it opens under the same ones only."""

    def __init__(self, key: bytes) -> None:
        self._sealer = sealing.Sealer(sealing.Keyring({_KEY_ID: key}), cache_size=64)

    def seal(self, owner: str, name: str, content: bytes) -> bytes:
        """`content` as it may be stored."""
        return self._sealer.seal(content, context=(owner, "", "installation", name))

    def open(self, owner: str, name: str, sealed: bytes) -> bytes:
        """What `seal` was given. Raises `UnreadableSecret`."""
        try:
            return self._sealer.open(sealed, (owner, "", "installation", name))
        except (errors.CorruptState, errors.UnknownSealingKey) as error:
            raise UnreadableSecret(f"{name} of {owner}: {error}") from error
