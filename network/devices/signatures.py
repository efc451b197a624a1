"""Checks of uploaded keys: types, ids that occur twice, and signatures, before anybody fetches them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from network.errors import BadRequest
from tidings.e2ee import xeddsa
from tidings.e2ee.errors import InvalidKey, InvalidSignature
from tidings.wire import registration

CURVE_TYPE = 0x05
KYBER_TYPE = 0x08
# A signature takes about 80 µs to check; more than so many are checked off the event loop.
INLINE = 10

# (where it stands in the body, the identity key, the typed public key, the signature)
Signed = tuple[str, bytes, bytes, bytes]


async def check(devices: Iterable[tuple[str, bytes, registration.DeviceRegistration | registration.KeyUpload]]) -> None:
    """Check the keys of each (place in the body, identity key, body). Raises `BadRequest`.

    Lengths are the schema's business. One-time pre-keys without signatures are checked by their type alone.
    """
    signed: list[Signed] = []
    for place, identity_key, body in devices:
        if isinstance(body, registration.DeviceRegistration):
            _check_type(f"{place}identity_key", body.identity_key, CURVE_TYPE)
            require_last_resort(body, has_one=False, place=place)
        for index, prekey in enumerate(body.prekeys):
            _check_type(f"{place}prekeys[{index}].public", prekey.public, CURVE_TYPE)
        _check_ids(f"{place}prekeys", [prekey.key_id for prekey in body.prekeys])
        # A first message names the one-time key or the last resort by the same number.
        last_resort = [body.kyber_prekey.key_id] if body.kyber_prekey is not None else []
        _check_ids(f"{place}kyber_prekeys", [*last_resort, *(key.key_id for key in body.kyber_prekeys)])
        signed.extend(_signed(place, identity_key, body))
    if len(signed) <= INLINE:
        _verify(signed)
    else:
        await asyncio.to_thread(_verify, signed)


def _signed(
    place: str, identity_key: bytes, body: registration.DeviceRegistration | registration.KeyUpload
) -> Iterator[Signed]:
    if body.signed_prekey is not None:
        key = body.signed_prekey
        _check_type(f"{place}signed_prekey.public", key.public, CURVE_TYPE)
        yield f"{place}signed_prekey", identity_key, key.public, key.signature
    kyber = [("kyber_prekey", body.kyber_prekey)] if body.kyber_prekey is not None else []
    kyber += [(f"kyber_prekeys[{index}]", key) for index, key in enumerate(body.kyber_prekeys)]
    for name, post_quantum in kyber:
        _check_type(f"{place}{name}.public", post_quantum.public, KYBER_TYPE)
        yield f"{place}{name}", identity_key, post_quantum.public, post_quantum.signature


def require_last_resort(
    body: registration.DeviceRegistration | registration.KeyUpload, *, has_one: bool, place: str = ""
) -> None:
    """One-time Kyber keys without a last resort would be a step down once they are used up. Raises `BadRequest`."""
    if body.kyber_prekeys and body.kyber_prekey is None and not has_one:
        raise BadRequest(f"{place}kyber_prekeys need a kyber_prekey, which is for when they are used up")


def _check_type(place: str, key: bytes, kind: int) -> None:
    if key[0] != kind:
        raise BadRequest(f"the first byte of {place} is 0x{key[0]:02x} instead of 0x{kind:02x}")


def _check_ids(place: str, key_ids: Sequence[int]) -> None:
    seen: set[int] = set()
    for key_id in key_ids:
        if key_id in seen:
            raise BadRequest(f"{place}: two keys have the id {key_id}")
        seen.add(key_id)


def _verify(signed: Sequence[Signed]) -> None:
    for place, identity_key, key, signature in signed:
        try:
            xeddsa.verify(identity_key, key, signature)
        except (InvalidSignature, InvalidKey) as error:
            raise BadRequest(f"{place}: {error}") from error
