"""Public keys of other devices as the network hands them out, for the encryption."""

from __future__ import annotations

from tidings import e2ee
from tidings.wire import device


def bundle_of(found: device.Bundle) -> e2ee.PreKeyBundle:
    """What a session is initiated from. Nothing is verified yet: that is done where it is used."""
    return e2ee.PreKeyBundle(
        registration_id=found.registration_id,
        identity_key=found.identity_key,
        signed_prekey_id=found.signed_prekey_id,
        signed_prekey=found.signed_prekey,
        signed_prekey_signature=found.signed_prekey_signature,
        prekey_id=found.prekey_id,
        prekey=found.prekey,
        kyber_prekey_id=found.kyber_prekey_id,
        kyber_prekey=found.kyber_prekey,
        kyber_prekey_signature=found.kyber_prekey_signature,
    )
