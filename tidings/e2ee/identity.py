"""Long-term identity key pair of an account's device."""

from tidings.e2ee import curve, xeddsa


class IdentityKeyPair(curve.KeyPair):
    """Identity key pair: `public` is 33 typed bytes, `private` 32 raw bytes."""

    __slots__ = ()

    def sign(self, message: bytes) -> bytes:
        """Return the XEdDSA signature of `message` by this identity, 64 bytes."""
        return xeddsa.sign(self.private, message)
