"""`tidings number`: adds, lists, limits, pauses and removes the numbers that an installation sends from."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from cli import choices, chosen_number, coreapp_client, guard, number_limits, number_upstream, process
from cli.coreapp_client import CoreappClient
from cli.counts import counted
from cli.settings import CoreappSettings
from tidings.secrets import first_password
from tidings.secrets.hash_pool import HashPool
from tidings.storage.business import (
    accounts,
    cloud_limits,
    cloud_subscriptions,
    number_removal,
    number_states,
    numbers,
    shards,
    tokens,
    upstreams,
    users,
)
from tidings.storage.business.number_removal import PendingRows
from tidings.storage.business.numbers import ACTIVE, MAX_NUMBERS, PAUSED, REMOVING, BusinessNumber
from tidings.storage.business.users import User
from tidings.storage.database import Connection, Database
from tidings.wire import addresses, core, phone_numbers
from tidings.wire.cloud import identity
from webapp.auth.tokens import LIFETIME, mark_of

Value = TypeVar("Value")

NOTICE_SECONDS = 2.0  # time in which all Webapps notice that a number is being removed; they poll twice a second
SECONDS = 10.0  # time that an unreachable database is waited for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a number, and an administrator for it with a random first password")
    add.add_argument("number", metavar="NUMBER", help="international number: 7 to 15 digits, with or without +")
    add.add_argument(
        "--registered",
        action="store_true",
        help="add the number although the network knows a device of it, as of a number that was removed here before",
    )
    add.add_argument(
        "--waba-of",
        metavar="NUMBER",
        help="number whose WABA, app and templates the new one shares in the Cloud API (default: its own)",
    )
    listing = actions.add_parser("list", help="list the numbers")
    listing.add_argument("--json", action="store_true", help="one JSON object")
    for action, text in (
        ("pause", "refuse requests about a number with 503; its queue and its callbacks continue"),
        ("resume", "serve a paused number again"),
    ):
        actions.add_parser(action, help=text).add_argument("number", metavar="NUMBER")
    number_limits.add_arguments(actions.add_parser("limits", help="show and change its limits in the Cloud API"))
    recipients = actions.add_parser("recipients", help="list and change the recipients of a number in test mode")
    number_limits.add_recipient_arguments(recipients)
    upstream = actions.add_parser("upstream", help="show and change whether it sends through the network or Cloud API")
    number_upstream.add_arguments(upstream)
    remove = actions.add_parser("remove", help="remove a number with its users, settings, messages and templates")
    remove.add_argument("number", metavar="NUMBER")
    remove.add_argument(
        "--drop",
        action="store_true",
        help="remove it even while messages are unsent or callbacks are to be posted; they are lost",
    )


def run(options: argparse.Namespace) -> int:
    """Read or change the database. Processes apply a change within seconds."""
    return int(process.run_loop(_run(CoreappSettings.read(os.environ), options)))


async def _run(settings: CoreappSettings, options: argparse.Namespace) -> int:
    database = Database(settings.business, "business")
    try:
        await accounts.require_number(database, settings.account)
        await database.persist(
            lambda connection: numbers.add_first(connection, settings.account), retry_seconds=SECONDS
        )
        if options.action == "list":
            return await _list(database, as_json=options.json)
        number = _digits(options.number)
        if options.action == "add":
            waba_of = _digits(options.waba_of) if options.waba_of is not None else ""
            return await _add(database, settings, number, waba_of=waba_of, is_registered=options.registered)
        if options.action in ("limits", "recipients"):
            await _change(database, functools.partial(_require, number=number))
            show = number_limits.run if options.action == "limits" else number_limits.run_recipients
            return await show(database, number, options)
        if options.action == "upstream":
            await _change(database, functools.partial(_require, number=number))
            return await number_upstream.run(database, settings, number, options)
        if options.action == "remove":
            return await _remove(database, number, drop=options.drop)
        return await _pause(database, number, is_paused=options.action == "pause")
    finally:
        await database.close()


def _digits(text: str) -> str:
    """Return the digits of a number as written on the command line. Raises `CommandFailure`."""
    found = text.strip().removeprefix("+")
    if not addresses.is_number(found) or phone_numbers.normalise(found) != found:
        raise guard.CommandFailure(
            f"{text[:40]!r} is not a number: give country code and number, 7 to 15 digits of which the first is not 0"
        )
    return found


async def _add(database: Database, settings: CoreappSettings, number: str, *, waba_of: str, is_registered: bool) -> int:
    if not is_registered:
        await _require_no_recipient(database, settings, number)
    password = first_password.make()
    hashes = HashPool(threads=1)
    try:
        password_hash = await hashes.hash(password)
    finally:
        hashes.close()

    async def work(connection: Connection) -> User:
        try:
            row = await numbers.add(connection, number, waba_of=waba_of)
        except numbers.NumberExists:
            raise _exists(number) from None
        except numbers.NoSuchWaba:
            raise guard.CommandFailure(
                f"--waba-of: {waba_of} is not a number of this installation: `tidings number list` lists them"
            ) from None
        except numbers.TooManyNumbers:
            raise guard.CommandFailure(
                f"this installation has {MAX_NUMBERS} numbers, which is the limit: remove one first"
            ) from None
        if row.waba_of:
            await cloud_limits.join(connection, number, row.waba_of)
        name = first_password.ADMINISTRATOR
        login = users.login_name(row, name)
        now = int(time.time() * 1000)
        user = User(login, number, users.ADMIN, password_hash, True, now, name=name)
        if not await users.add_user(connection, user):
            raise guard.CommandFailure(f"the first number has a user named {login}: delete that user first")
        return user

    user = await _change(database, work)
    print(f"{number} is added")
    print(f"user            {user.username}")
    print(f"first password  {password}  (shown only now; the first login must replace it)")
    return 0


def _exists(number: str) -> guard.CommandFailure:
    return guard.CommandFailure(f"{number} is a number of this installation already")


async def _require_no_recipient(database: Database, settings: CoreappSettings, number: str) -> None:
    """Raise `CommandFailure` for a number of this installation, or that the network has a device of. Only a running
    Coreapp can ask the network.
    """
    async with database.reading() as connection:
        if await numbers.find(connection, number) is not None:
            raise _exists(number)
        owners = await shards.list_owners(connection)
    address = next((owner.address for owner in owners if owner.shard == 0), "")
    if not address:
        print("no Coreapp runs, so it is not checked whether a recipient has this number")
        return

    def ask(n: int) -> core.CheckContacts:
        return core.CheckContacts(n, settings.account, [number], wait=True, force_check=True)

    try:
        found = await CoreappClient.of(settings).call(address, ask)
    except guard.CommandFailure as failure:
        print(f"it is not checked whether a recipient has this number: {failure}")
        return
    if any(contact.status == "valid" for contact in found.contacts):
        raise guard.CommandFailure(
            f"{number} is registered at the network, so it is a recipient's number; if it is yours all the same, add "
            "it with --registered"
        )


async def _list(database: Database, *, as_json: bool) -> int:
    async with database.reading() as connection:
        found = await numbers.list_numbers(connection)
        registered = {each.number for each in found if await accounts.is_registered(connection, each.number)}
        bridged = {upstream.account for upstream in await upstreams.list_all(connection)}
    if as_json:
        entries = [
            _object(each, is_registered=each.number in registered, is_bridged=each.number in bridged) for each in found
        ]
        print(json.dumps({"numbers": entries}, indent=1))
        return 0
    for each in found:
        way = "registered" if each.number in registered else "not registered"
        state = f"{each.state}, {'through the Cloud API' if each.number in bridged else way}"
        named = identity.derive(each.number, each.waba_of)
        ids = f"id {named.phone_number_id}  waba {named.waba_id}  app {named.app_id}"
        first = "  first" if each.is_first else ""
        print(f"{each.number}  {state}  since {choices.utc(each.created_at)}  {ids}{first}")
    print(f"{len(found)} of at most {MAX_NUMBERS} numbers")
    return 0


def _object(number: BusinessNumber, *, is_registered: bool, is_bridged: bool) -> dict[str, Any]:
    """Return one number as a JSON object.

    is_registered: it has a device at the network
    is_bridged: it sends through the real Cloud API
    """
    named = identity.derive(number.number, number.waba_of)
    return {
        "number": number.number,
        "state": number.state,
        "registered": is_registered,
        "upstream": number_upstream.CLOUD if is_bridged else number_upstream.NETWORK,
        "created_at": choices.utc(number.created_at),
        "phone_number_id": named.phone_number_id,
        "waba_id": named.waba_id,
        "app_id": named.app_id,
        "first": number.is_first,
    }


async def _pause(database: Database, number: str, *, is_paused: bool) -> int:
    change = functools.partial(number_states.change, number=number, is_paused=is_paused, by=coreapp_client.operator())
    try:
        await _change(database, change)
    except number_states.NumberMissing:
        raise chosen_number.unknown(number) from None
    except number_states.NumberBeingRemoved:
        raise guard.CommandFailure(f"{number} is being removed") from None
    print(f"{number} is {PAUSED if is_paused else ACTIVE}")
    return 0


async def _remove(database: Database, number: str, *, drop: bool) -> int:
    async def begin(connection: Connection) -> PendingRows:
        row = await _require(connection, number)
        if row.is_first:
            raise guard.CommandFailure(
                f"{number} is the number that TIDINGS_BUSINESS_NUMBER names, which cannot be removed"
            )
        if row.state == REMOVING:
            # An earlier removal was interrupted.
            return PendingRows(0, 0)
        sharing = [other.number for other in await numbers.list_of_waba(connection, number)]
        if sharing:
            raise guard.CommandFailure(f"{', '.join(sharing)} share the WABA of {number}: remove them first")
        pending = await number_removal.begin(connection, row, drop=drop)
        if not pending or drop:
            await _revoke_tokens(connection, number)
        return pending

    pending = await _change(database, begin)
    if pending and not drop:
        raise guard.CommandFailure(
            f"{number} has {_describe(pending)} to be posted: pause it and wait, or give --drop to lose them"
        )
    # Until then a Webapp may still write for the number.
    await asyncio.sleep(NOTICE_SECONDS)
    for table in number_removal.list_tables():
        after: Any = None
        while True:
            page = functools.partial(number_removal.delete_page, number=number, table=table, after=after)
            after = await _change(database, page)
            if after is None:
                break
    await _change(database, functools.partial(_delete, number))
    lost = f", with {_describe(pending)}" if pending else ""
    print(f"{number} is removed{lost}")
    return 0


def _describe(pending: PendingRows) -> str:
    return f"{counted(pending.jobs, 'unsent message')} and {counted(pending.callbacks, 'callback')}"


async def _delete(number: str, connection: Connection) -> None:
    """Delete what is left of a number: its row, and the subscription to webhooks of its own WABA."""
    named = identity.derive(number)
    await cloud_subscriptions.remove(connection, named.waba_id, named.app_id)
    await numbers.delete(connection, number)


async def _revoke_tokens(connection: Connection, number: str) -> None:
    """Revoke all tokens of a number's users, so that Webapps refuse them within a second."""
    now = int(time.time() * 1000)
    for user in await users.list_users(connection, number):
        await tokens.revoke(connection, tokens.Revocation(mark_of(user), now + LIFETIME * 1000, now))


async def _require(connection: Connection, number: str) -> BusinessNumber:
    row = await numbers.find(connection, number, lock=True)
    if row is None:
        raise chosen_number.unknown(number)
    return row


async def _change(database: Database, work: Callable[[Connection], Awaitable[Value]]) -> Value:
    return await database.commit(work)
