"""Key of operators' commands for Coreapps: derived from the master key, which Webapps do not have."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_INFO = b"Tidings operator key v1"


def derive(master_key: bytes) -> str:
    """Return the operator key that belongs to a master key."""
    return HKDF(hashes.SHA256(), 32, salt=bytes(32), info=_INFO).derive(master_key).hex()
