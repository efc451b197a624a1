"""The business's own number as a device: its keys, and its registration on the network."""

from __future__ import annotations

import base64
import dataclasses
import logging
import secrets
from collections.abc import Sequence

import httpx

from coreapp.errors import UpstreamAway, UpstreamRefused
from tidings import e2ee
from tidings.storage import accounts
from tidings.storage.database import Database

log = logging.getLogger(__name__)

ONE_TIME_PREKEYS = 100
_DATA_KEY_ID = 1

# A private pre-key is kept as its public half, its private half and, if signed, its signature, end to end.
_CURVE = 33  # bytes of a typed Curve25519 public key
_KYBER = 1569  # bytes of a typed Kyber-1024 public key
_SIGNATURE = 64


class OwnDevice:
    """A registered number with its private keys in memory.

    One-time pre-keys leave memory and table when the session that they opened is committed.
    """

    def __init__(
        self,
        number: str,
        token: str,
        registration_id: int,
        identity: e2ee.IdentityKeyPair,
        sealer: e2ee.Sealer,
    ) -> None:
        self.number = number
        self.token = token
        self.registration_id = registration_id
        self.identity = identity
        self.sealer = sealer
        self.signed_prekeys: dict[int, e2ee.SignedPreKey] = {}
        self.prekeys: dict[int, e2ee.PreKey] = {}
        self.kyber_prekeys: dict[int, e2ee.KyberPreKey] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Registrar:
    """Registers numbers over the network's HTTP API, with the installation's registration key.

    http_url: of the network, `http://127.0.0.1:9095`.
    """

    http_url: str
    registration_key: str = dataclasses.field(repr=False)
    master_key: bytes = dataclasses.field(repr=False)

    async def load_or_register(self, database: Database, number: str) -> OwnDevice:
        """The number's device; at the very first start its keys are made and registered.

        Raises `UpstreamAway` and `UpstreamRefused`.
        """
        async with database.reading() as connection:
            found = await accounts.find_account(connection, number)
            kept = await accounts.list_prekeys(connection, number)
        if found is not None:
            return self._load(found, kept)
        return await self._register(database, number)

    async def upload_prekeys(self, database: Database, device: OwnDevice) -> None:
        """Make new one-time pre-keys, keep them, then hand their public halves to the network."""
        start = max(device.prekeys, default=0) + secrets.randbelow(1000) + 1
        fresh = [e2ee.PreKey.generate(start + n) for n in range(ONE_TIME_PREKEYS)]
        async with database.transaction() as connection:
            await accounts.add_prekeys(
                connection, [_sealed(device, accounts.ONE_TIME, key.key_id, key.public + key.private) for key in fresh]
            )
        device.prekeys.update({key.key_id: key for key in fresh})
        await self._call(
            "PUT",
            f"/v1/keys/{device.number}",
            {"prekeys": [{"key_id": key.key_id, "public": _text(key.public)} for key in fresh]},
            device.token,
        )
        log.info("account.prekeys_uploaded", extra={"number": device.number, "count": len(fresh)})

    def _load(self, account: accounts.Account, kept: Sequence[accounts.OwnPreKey]) -> OwnDevice:
        keyring = e2ee.Keyring.unwrap(self.master_key, {_DATA_KEY_ID: account.data_key})
        sealer = e2ee.Sealer(keyring)
        number = account.number
        identity = e2ee.IdentityKeyPair.from_private(
            sealer.open(account.identity_key, (number, "", "account", "identity_key"))
        )
        token = sealer.open(account.device_token, (number, "", "account", "device_token")).decode()
        device = OwnDevice(number, token, account.registration_id, identity, sealer)
        for key in kept:
            blob = sealer.open(key.sealed, (number, "", key.kind, key.key_id))
            if key.kind == accounts.KYBER:
                parts = blob[:_KYBER], blob[_KYBER:-_SIGNATURE], blob[-_SIGNATURE:]
                device.kyber_prekeys[key.key_id] = e2ee.KyberPreKey(key.key_id, *parts)
            elif key.kind == accounts.SIGNED:
                parts = blob[:_CURVE], blob[_CURVE:-_SIGNATURE], blob[-_SIGNATURE:]
                device.signed_prekeys[key.key_id] = e2ee.SignedPreKey(key.key_id, *parts)
            else:
                device.prekeys[key.key_id] = e2ee.PreKey(key.key_id, blob[:_CURVE], blob[_CURVE:])
        return device

    async def _register(self, database: Database, number: str) -> OwnDevice:
        identity = e2ee.IdentityKeyPair.generate()
        signed = e2ee.SignedPreKey.generate(identity, 1)
        kyber = e2ee.KyberPreKey.generate(identity, 1)
        prekeys = [e2ee.PreKey.generate(n + 1) for n in range(ONE_TIME_PREKEYS)]
        registration_id = secrets.randbelow(16380) + 1
        answer = await self._call(
            "POST",
            "/v1/registrations",
            {
                "number": number,
                "registration_id": registration_id,
                "identity_key": _text(identity.public),
                "signed_prekey": {
                    "key_id": signed.key_id,
                    "public": _text(signed.public),
                    "signature": _text(signed.signature),
                },
                "kyber_prekey": {
                    "key_id": kyber.key_id,
                    "public": _text(kyber.public),
                    "signature": _text(kyber.signature),
                },
                "prekeys": [{"key_id": key.key_id, "public": _text(key.public)} for key in prekeys],
            },
            self.registration_key,
        )
        data_key = e2ee.generate_data_key()
        wrapped = e2ee.wrap_data_key(self.master_key, _DATA_KEY_ID, data_key)
        sealer = e2ee.Sealer(e2ee.Keyring.unwrap(self.master_key, {_DATA_KEY_ID: wrapped}))
        device = OwnDevice(number, str(answer["token"]), registration_id, identity, sealer)
        device.signed_prekeys[signed.key_id] = signed
        device.kyber_prekeys[kyber.key_id] = kyber
        device.prekeys.update({key.key_id: key for key in prekeys})
        async with database.transaction() as connection:
            await accounts.add_account(
                connection,
                accounts.Account(
                    number,
                    registration_id,
                    sealer.seal(identity.private, context=(number, "", "account", "identity_key")),
                    sealer.seal(device.token.encode(), context=(number, "", "account", "device_token")),
                    wrapped,
                ),
            )
            await accounts.add_prekeys(
                connection,
                [
                    _sealed(device, accounts.SIGNED, signed.key_id, signed.public + signed.private + signed.signature),
                    _sealed(device, accounts.KYBER, kyber.key_id, kyber.public + kyber.private + kyber.signature),
                    *(_sealed(device, accounts.ONE_TIME, key.key_id, key.public + key.private) for key in prekeys),
                ],
            )
        log.info("account.registered", extra={"number": number})
        return device

    async def _call(self, method: str, path: str, body: object, bearer: str) -> dict[str, object]:
        try:
            async with httpx.AsyncClient(base_url=self.http_url, timeout=30, trust_env=False) as client:
                answer = await client.request(method, path, json=body, headers={"Authorization": f"Bearer {bearer}"})
        except httpx.TransportError as error:
            raise UpstreamAway(f"{self.http_url}: {error!r}") from error
        if answer.status_code >= 500:
            raise UpstreamAway(f"{self.http_url}{path}: HTTP {answer.status_code}")
        if not answer.is_success:
            raise UpstreamRefused(f"HTTP {answer.status_code}", answer.text[:200])
        content: dict[str, object] = answer.json()
        return content


def _sealed(device: OwnDevice, kind: str, key_id: int, blob: bytes) -> accounts.OwnPreKey:
    sealed = device.sealer.seal(blob, context=(device.number, "", kind, key_id))
    return accounts.OwnPreKey(device.number, kind, key_id, sealed)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
