"""The business's own number as a device: its keys, and its registration on the network."""

from __future__ import annotations

import base64
import dataclasses
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Protocol

import httpx

from coreapp.errors import UpstreamAway, UpstreamRefused
from tidings import e2ee
from tidings.storage import accounts, registrations, sender_keys, sessions, shards
from tidings.storage.database import Connection, Database

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


class Keys(Protocol):
    """Backed-up keys of a number."""

    @property
    def number(self) -> str: ...

    def device(self, sealer: e2ee.Sealer) -> OwnDevice:
        """A device with these keys, without a token."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Registrar:
    """Registers numbers over the network's HTTP API, with the installation's registration key.

    http_url: of the network, `http://127.0.0.1:9095`.
    """

    http_url: str
    registration_key: str = dataclasses.field(repr=False)
    master_key: bytes = dataclasses.field(repr=False)

    async def load(self, database: Database, number: str) -> OwnDevice | None:
        """The number's device, once it is registered."""
        async with database.reading() as connection:
            found = await accounts.find_account(connection, number)
            kept = await accounts.list_prekeys(connection, number)
        return self._load(found, kept) if found is not None else None

    async def request_code(self, number: str) -> None:
        """Have the network send a code to the number. Raises `UpstreamAway` and `UpstreamRefused`."""
        await self._call("POST", "/v1/codes", {"number": number}, "")

    async def register(self, database: Database, number: str, *, code: str = "") -> OwnDevice:
        """Make the number's keys and register it: by the code, or without one by the registration key.

        Raises `UpstreamAway` and `UpstreamRefused`.
        """
        sealer, wrapped = self._new_sealer()
        device = OwnDevice(number, "", secrets.randbelow(16380) + 1, e2ee.IdentityKeyPair.generate(), sealer)
        device.signed_prekeys[1] = e2ee.SignedPreKey.generate(device.identity, 1)
        device.kyber_prekeys[1] = e2ee.KyberPreKey.generate(device.identity, 1)
        await self._announce(device, code)
        async with database.transaction() as connection:
            await self._keep(connection, device, wrapped)
        log.info("account.registered", extra={"number": number})
        return device

    async def restore(self, database: Database, lease: shards.Lease, keys: Keys) -> None:
        """Put backed-up keys in the place of the present ones, register with them, and forget every session
        and sender key.

        What is sealed already opens still: the data key stays. Raises `LeaseLost`, `UpstreamAway`, `UpstreamRefused`.
        """
        async with database.reading() as connection:
            present = await accounts.find_account(connection, keys.number)
        if present is not None:
            wrapped = present.data_key
            sealer = e2ee.Sealer(e2ee.Keyring.unwrap(self.master_key, {_DATA_KEY_ID: wrapped}))
        else:
            sealer, wrapped = self._new_sealer()
        device = keys.device(sealer)
        await self._announce(device, "")

        async def work(connection: Connection) -> None:
            await shards.fence(connection, lease)
            await self._keep(connection, device, wrapped)
            await sessions.clear(connection, device.number)
            await sender_keys.clear(connection, device.number)

        await database.persist(work)
        log.info("account.restored", extra={"number": device.number})

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
            add_prekey(device, key.kind, key.key_id, sealer.open(key.sealed, (number, "", key.kind, key.key_id)))
        return device

    def _new_sealer(self) -> tuple[e2ee.Sealer, bytes]:
        data_key = e2ee.generate_data_key()
        wrapped = e2ee.wrap_data_key(self.master_key, _DATA_KEY_ID, data_key)
        return e2ee.Sealer(e2ee.Keyring.unwrap(self.master_key, {_DATA_KEY_ID: wrapped})), wrapped

    async def _announce(self, device: OwnDevice, code: str) -> None:
        """Register with new one-time pre-keys; the device has a token then."""
        start = max(device.prekeys, default=0) + 1
        fresh = [e2ee.PreKey.generate(start + n) for n in range(ONE_TIME_PREKEYS)]
        signed = device.signed_prekeys[max(device.signed_prekeys)]
        kyber = device.kyber_prekeys[max(device.kyber_prekeys)]
        body: dict[str, object] = {
            "number": device.number,
            "registration_id": device.registration_id,
            "identity_key": _text(device.identity.public),
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
            "prekeys": [{"key_id": key.key_id, "public": _text(key.public)} for key in fresh],
        }
        if code:
            body["code"] = code
        answer = await self._call("POST", "/v1/registrations", body, "" if code else self.registration_key)
        device.token = str(answer["token"])
        device.prekeys.update({key.key_id: key for key in fresh})

    async def _keep(self, connection: Connection, device: OwnDevice, wrapped: bytes) -> None:
        seal, number = device.sealer.seal, device.number
        await accounts.add_account(
            connection,
            accounts.Account(
                number,
                device.registration_id,
                seal(device.identity.private, context=(number, "", "account", "identity_key")),
                seal(device.token.encode(), context=(number, "", "account", "device_token")),
                wrapped,
            ),
        )
        await accounts.add_prekeys(connection, [_sealed(device, *entry) for entry in private_prekeys(device)])
        await registrations.note_registered(connection, number, int(time.time() * 1000))

    async def _call(self, method: str, path: str, body: object, bearer: str) -> dict[str, object]:
        try:
            async with httpx.AsyncClient(base_url=self.http_url, timeout=30, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
                answer = await client.request(method, path, json=body, headers=headers)
        except httpx.TransportError as error:
            raise UpstreamAway(f"{self.http_url}: {error!r}") from error
        if answer.status_code >= 500:
            raise UpstreamAway(f"{self.http_url}{path}: HTTP {answer.status_code}")
        if not answer.is_success:
            raise UpstreamRefused(f"HTTP {answer.status_code}", answer.text[:200])
        content: dict[str, object] = answer.json()
        return content


def private_prekeys(device: OwnDevice) -> list[tuple[str, int, bytes]]:
    """Kind, id and the bytes to keep of every private pre-key."""
    return [
        *((accounts.SIGNED, k.key_id, k.public + k.private + k.signature) for k in device.signed_prekeys.values()),
        *((accounts.KYBER, k.key_id, k.public + k.private + k.signature) for k in device.kyber_prekeys.values()),
        *((accounts.ONE_TIME, k.key_id, k.public + k.private) for k in device.prekeys.values()),
    ]


def add_prekey(device: OwnDevice, kind: str, key_id: int, blob: bytes) -> None:
    """Take in one of what `private_prekeys` gave."""
    if kind == accounts.KYBER:
        parts = blob[:_KYBER], blob[_KYBER:-_SIGNATURE], blob[-_SIGNATURE:]
        device.kyber_prekeys[key_id] = e2ee.KyberPreKey(key_id, *parts)
    elif kind == accounts.SIGNED:
        parts = blob[:_CURVE], blob[_CURVE:-_SIGNATURE], blob[-_SIGNATURE:]
        device.signed_prekeys[key_id] = e2ee.SignedPreKey(key_id, *parts)
    else:
        device.prekeys[key_id] = e2ee.PreKey(key_id, blob[:_CURVE], blob[_CURVE:])


def _sealed(device: OwnDevice, kind: str, key_id: int, blob: bytes) -> accounts.OwnPreKey:
    sealed = device.sealer.seal(blob, context=(device.number, "", kind, key_id))
    return accounts.OwnPreKey(device.number, kind, key_id, sealed)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
