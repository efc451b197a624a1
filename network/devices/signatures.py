"""Checks of uploaded keys before they are handed out: types, duplicate ids and signatures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from network.errors import BadRequest
from tidings.e2ee import xeddsa
from tidings.e2ee.errors import InvalidKey, InvalidSignature
from tidings.wire import registration

CURVE_TYPE = 0x05  # First byte of a Curve25519 public key.
KYBER_TYPE = 0x08  # First byte of a Kyber public key.
# Signatures that are checked on the event loop, about 80 µs each; more are checked in a thread.
INLINE = 10

# (place in the body, identity key, typed public key, signature)
Signed = tuple[str, bytes, bytes, bytes]


async def check(devices: Iterable[tuple[str, bytes, registration.DeviceRegistration | registration.KeyUpload]]) -> None:
    """Check the keys of each (place in the body, identity key, body). Raises `BadRequest`.

    The schema checks lengths. Of one-time pre-keys without signatures only the type is checked.
    """
    signed: list[Signed] = []
    for field, identity_key, body in devices:
        if isinstance(body, registration.DeviceRegistration):
            _check_type(f"{field}identity_key", body.identity_key, CURVE_TYPE)
            require_last_resort(body, has_one=False, field=field)
        for index, prekey in enumerate(body.prekeys):
            _check_type(f"{field}prekeys[{index}].public", prekey.public, CURVE_TYPE)
        _check_ids(f"{field}prekeys", [prekey.key_id for prekey in body.prekeys])
        # A first message names the one-time key or the last resort by the same id field.
        last_resort = [body.kyber_prekey.key_id] if body.kyber_prekey is not None else []
        _check_ids(f"{field}kyber_prekeys", [*last_resort, *(key.key_id for key in body.kyber_prekeys)])
        signed.extend(_signed(field, identity_key, body))
    if len(signed) <= INLINE:
        _verify(signed)
    else:
        await asyncio.to_thread(_verify, signed)


def _signed(
    field: str, identity_key: bytes, body: registration.DeviceRegistration | registration.KeyUpload
) -> Iterator[Signed]:
    if body.signed_prekey is not None:
        key = body.signed_prekey
        _check_type(f"{field}signed_prekey.public", key.public, CURVE_TYPE)
        yield f"{field}signed_prekey", identity_key, key.public, key.signature
    kyber = [("kyber_prekey", body.kyber_prekey)] if body.kyber_prekey is not None else []
    kyber += [(f"kyber_prekeys[{index}]", key) for index, key in enumerate(body.kyber_prekeys)]
    for name, post_quantum in kyber:
        _check_type(f"{field}{name}.public", post_quantum.public, KYBER_TYPE)
        yield f"{field}{name}", identity_key, post_quantum.public, post_quantum.signature


def require_last_resort(
    body: registration.DeviceRegistration | registration.KeyUpload, *, has_one: bool, field: str = ""
) -> None:
    """Require a last resort with one-time Kyber keys. Raises `BadRequest`.

    Without one, sessions would fall back to a weaker key agreement once the one-time keys are used up.
    """
    if body.kyber_prekeys and body.kyber_prekey is None and not has_one:
        raise BadRequest(f"{field}kyber_prekeys require a kyber_prekey, which is used when none is left")


def _check_type(field: str, key: bytes, kind: int) -> None:
    if key[0] != kind:
        raise BadRequest(f"the first byte of {field} is 0x{key[0]:02x} instead of 0x{kind:02x}")


def _check_ids(field: str, key_ids: Sequence[int]) -> None:
    seen: set[int] = set()
    for key_id in key_ids:
        if key_id in seen:
            raise BadRequest(f"{field}: two keys have the id {key_id}")
        seen.add(key_id)


def _verify(signed: Sequence[Signed]) -> None:
    for field, identity_key, key, signature in signed:
        try:
            xeddsa.verify(identity_key, key, signature)
        except (InvalidSignature, InvalidKey) as error:
            raise BadRequest(f"{field}: {error}") from error
