"""`tidings webhook-secret`: shows the secrets that sign callbacks, and rotates them while the installation runs."""

from __future__ import annotations

import argparse
import asyncio
import base64
import hmac
import os
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cli import chosen_number, guard
from cli.settings import CoreappSettings
from coreapp import signature, webhook_secrets
from coreapp.webhook_secrets import RotationPending, WebhookSecret, WebhookSecrets
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.storage.database import Connection, Database
from tidings.wire.cloud import identity

_HOUR_MS = 3_600_000

Change = Callable[[Sequence[WebhookSecret], int], Sequence[WebhookSecret]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the options of a rotation."""
    parser.add_argument(
        "action",
        choices=("show", "rotate", "retire", "cloud"),
        help="print the secrets that sign callbacks, create a new one while the previous one signs too, retire the "
        "previous one now, or print the app secret that signs webhooks of the Cloud API",
    )
    parser.add_argument(
        "--keep",
        type=float,
        default=24.0,
        metavar="HOURS",
        help="hours for which the previous secret still signs (default: 24)",
    )
    chosen_number.add_option(parser)
    parser.add_argument("--from-file", type=Path, metavar="FILE", help="read the new secret from a file")


def run(options: argparse.Namespace) -> int:
    """Print the secrets, after changing them in the database if requested. Coreapps apply a change within 5 seconds."""
    return asyncio.run(_run(CoreappSettings.read(os.environ), options))


async def _run(settings: CoreappSettings, options: argparse.Namespace) -> int:
    keys = settings.secrets.settings_key
    safe = SecretSealer(*keys.keys, read=keys.read)
    database = Database(settings.business, "business")
    try:
        number = await chosen_number.find(database, settings.account, options.number)
        if options.action == "cloud":
            owner = await chosen_number.find_waba_owner(database, settings.account, options.number)
            print(webhook_secrets.app_secret(settings.secrets.webhook_secret, identity.derive(owner).app_id))
            return 0
        kept = WebhookSecrets(number, settings.secrets.webhook_secret, safe)
        if options.action == "show":
            async with database.reading() as connection:
                found = await kept.find(connection)
        else:
            found = await _change(database, kept, _rotation(options) if options.action == "rotate" else _retire)
    except UnreadableSecret as error:
        raise guard.CommandFailure(f"{error}: is TIDINGS_SETTINGS_KEY that of the Coreapps?") from error
    finally:
        await database.close()
    _print(webhook_secrets.in_force(found, _now()))
    if options.action != "show":
        print("every Coreapp uses it within 5 seconds")
    return 0


def _rotation(options: argparse.Namespace) -> Change:
    """Return the change that adds a new secret. Raises `CommandFailure` for wrong options."""
    if not 0 < options.keep <= 8760:
        raise guard.CommandFailure("--keep is not a number of hours from 0 to 8760")
    fresh = signature.PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    if options.from_file is not None:
        try:
            fresh = options.from_file.read_text(encoding="ascii").strip()
            signature.secret_bytes(fresh)
        except OSError as error:
            raise guard.CommandFailure(f"{options.from_file}: {error.strerror}") from error
        except ValueError as error:
            raise guard.CommandFailure(f"{options.from_file}: {error}") from None

    def change(found: Sequence[WebhookSecret], now: int) -> Sequence[WebhookSecret]:
        retires_at = now + int(options.keep * _HOUR_MS)
        if hmac.compare_digest(found[0].secret, fresh):
            # An earlier attempt has committed without an answer.
            return found
        try:
            return webhook_secrets.rotated(found, fresh, now=now, retires_at=retires_at)
        except RotationPending:
            raise guard.CommandFailure(
                "the previous secret still signs: wait until it ends, or end it with `retire`"
            ) from None

    return change


def _retire(found: Sequence[WebhookSecret], now: int) -> Sequence[WebhookSecret]:
    return found[:1]


async def _change(database: Database, kept: WebhookSecrets, change: Change) -> Sequence[WebhookSecret]:
    async def work(connection: Connection) -> Sequence[WebhookSecret]:
        changed = change(await kept.find(connection, for_update=True), _now())
        await kept.keep(connection, changed)
        return changed

    return await database.persist(work, retry_seconds=10.0)


def _now() -> int:
    return int(time.time() * 1000)


def _print(found: Sequence[WebhookSecret]) -> None:
    for entry in found:
        until = f"until {datetime.fromtimestamp(entry.retires_at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        print(f"{entry.secret}  {until if entry.retires_at else 'current'}")
