"""`tidings number upstream`: whether a number sends through the network or through the real Cloud API."""

from __future__ import annotations

import argparse
import hmac
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn

import msgspec

from cli import choices, chosen_number, guard
from cli.counts import counted
from cli.settings import CoreappSettings
from coreapp.graph_api.client import GraphClient
from coreapp.upstream import account_check
from coreapp.upstream.account_check import UpstreamProblem
from coreapp.upstream_access import UpstreamAccess, find_access
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress import settings, urls
from tidings.egress.guard import EgressGuard
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.secrets import secret_sources
from tidings.secrets.secret_sources import SecretUnavailable
from tidings.storage.business import numbers, upstreams
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.upstreams import JobsPending, Upstream
from tidings.storage.database import Connection, Database

NETWORK, CLOUD = "network", "cloud"
TOKEN, APP_SECRET = "TIDINGS_CLOUD_TOKEN", "TIDINGS_CLOUD_APP_SECRET"
BASE_URL = "https://graph.facebook.com/v25.0"
RATE, MAX_RATE = 80, 1_000  # messages per second
KEEP_HOURS = 24.0
_HOUR_MS = 3_600_000
_ID = re.compile(r"[0-9]{1,20}", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number, the way of sending and the options."""
    parser.add_argument("number", metavar="NUMBER", help="number of this installation")
    parser.add_argument(
        "way", nargs="?", choices=(NETWORK, CLOUD), help="way of sending from now on (default: print the present one)"
    )
    parser.add_argument(
        "--base-url", metavar="URL", help=f"URL of the Cloud API with its version (default: {BASE_URL})"
    )
    parser.add_argument("--phone-number-id", metavar="P", help="id of the phone number in the Cloud API")
    parser.add_argument("--waba-id", metavar="W", help="id of the WhatsApp Business Account")
    parser.add_argument(
        "--messages-per-second",
        type=_rate,
        metavar="RATE",
        help=f"throughput of the number (default: {RATE})",
    )
    parser.add_argument(
        "--keep",
        type=float,
        default=KEEP_HOURS,
        metavar="HOURS",
        help=f"hours for which a replaced app secret is accepted as well (default: {KEEP_HOURS:g})",
    )
    parser.add_argument(
        "--unchecked", action="store_true", help="store the ids and secrets without asking the Cloud API about them"
    )


def _rate(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and 1 <= int(given) <= MAX_RATE):
        raise argparse.ArgumentTypeError(f"{given[:30]!r} is not a number of messages from 1 to {MAX_RATE}")
    return int(given)


async def run(database: Database, installation: CoreappSettings, number: str, options: argparse.Namespace) -> int:
    """Print or change the way of sending. The number must exist."""
    keys = installation.secrets.settings_key
    safe = SecretSealer(*keys.keys, read=keys.read)
    async with database.reading() as connection:
        present = await find_access(connection, safe, number)
    if options.way is None:
        _show(number, present)
        return 0
    if options.way == NETWORK:
        return await _detach(database, number)
    access = _changed(number, present, options, os.environ)
    if not options.unchecked:
        _report(await _check(access))
    sealed = upstream_credentials.sealed(safe, number, access.credentials or _missing(TOKEN))

    async def work(connection: Connection) -> None:
        await upstreams.attach(connection, await _find(connection, number), access.upstream, sealed)

    await _switch(database, work, number)
    _show(number, access)
    print("Webapps and Coreapps use it within seconds")
    return 0


async def _detach(database: Database, number: str) -> int:
    async def work(connection: Connection) -> None:
        await upstreams.detach(connection, await _find(connection, number))

    await _switch(database, work, number)
    print(f"{number} sends through the network")
    return 0


async def _switch(database: Database, work: Callable[[Connection], Awaitable[None]], number: str) -> None:
    try:
        await database.commit(work)
    except JobsPending as pending:
        raise guard.CommandFailure(
            f"{number} has {counted(pending.count, 'unsent message')}: pause it and wait, or purge the queue with "
            "`tidings queue purge-jobs`"
        ) from None


async def _find(connection: Connection, number: str) -> BusinessNumber:
    found = await numbers.find(connection, number)
    if found is None or found.state == numbers.REMOVING:
        raise chosen_number.unknown(number)
    return found


def _changed(
    number: str, present: UpstreamAccess | None, options: argparse.Namespace, variables: Mapping[str, str]
) -> UpstreamAccess:
    """Return the upstream as it is to be; what is not given stays. Raises `CommandFailure`."""
    before = present.upstream if present is not None else None
    base_url = options.base_url or (before.base_url if before is not None else BASE_URL)
    upstream = Upstream(
        number,
        _base_url(base_url),
        _id("--phone-number-id", options.phone_number_id or (before.phone_number_id if before else "")),
        _id("--waba-id", options.waba_id or (before.waba_id if before else "")),
        options.messages_per_second or (before.rate if before is not None else RATE),
        "",
        int(time.time() * 1000),
    )
    return UpstreamAccess(upstream, _credentials(present, options, variables))


def _credentials(
    present: UpstreamAccess | None, options: argparse.Namespace, variables: Mapping[str, str]
) -> UpstreamCredentials:
    before = present.credentials if present is not None else None
    token, app_secret = _secret(variables, TOKEN), _secret(variables, APP_SECRET)
    if before is None:
        return UpstreamCredentials(
            token or _missing(TOKEN),
            app_secret or _missing(APP_SECRET),
            callback_secret=secrets.token_urlsafe(24),
            verify_token=secrets.token_urlsafe(24),
        )
    if not 0 <= options.keep <= 8760:
        raise guard.CommandFailure("--keep is not a number of hours from 0 to 8760")
    if app_secret and not hmac.compare_digest(app_secret, before.app_secret):
        until = int(time.time() * 1000 + options.keep * _HOUR_MS)
        before = msgspec.structs.replace(
            before, app_secret=app_secret, previous_app_secret=before.app_secret, previous_until=until
        )
    return msgspec.structs.replace(before, token=token) if token else before


def _secret(variables: Mapping[str, str], name: str) -> str:
    """Return a secret from its variable, a file or a command; empty if it is not given. Raises `CommandFailure`."""
    try:
        found = secret_sources.find(variables, name, command=True)
        text = found.read() if found is not None else ""
    except SecretUnavailable as error:
        raise guard.CommandFailure(str(error)) from None
    if not text.isascii() or not (text.isprintable() or not text):
        raise guard.CommandFailure(f"{name}: has characters that are not printable ASCII")
    return text


def _missing(name: str) -> NoReturn:
    raise guard.CommandFailure(f"{name} is not set: give it, {name}_FILE or {name}_COMMAND in the environment")


def _base_url(text: str) -> str:
    """Return the base URL without a slash at its end. Raises `CommandFailure`."""
    found = text.rstrip("/")
    try:
        target = urls.parse(found)
    except ValueError as error:
        raise guard.CommandFailure(f"--base-url: {error}") from None
    if "?" in found or "#" in found or target.authorization:
        raise guard.CommandFailure("--base-url: has a user, ? or #")
    if len(found) > 255:
        raise guard.CommandFailure("--base-url: is longer than 255 characters")
    return found


def _id(option: str, given: str) -> str:
    if not _ID.fullmatch(given):
        raise guard.CommandFailure(
            f"{option}: give the id, up to 20 digits" + (f" (got {given[:30]!r})" if given else "")
        )
    return given


async def _check(access: UpstreamAccess) -> Sequence[UpstreamProblem]:
    client = GraphClient(EgressGuard(settings.read(os.environ, "webhooks")))
    try:
        return await account_check.run(client, access, time.time())
    finally:
        client.close()


def _report(problems: Sequence[UpstreamProblem]) -> None:
    """Print warnings. Raises `CommandFailure` for an error, before anything is stored."""
    for problem in problems:
        if problem.is_error:
            raise guard.CommandFailure(f"{problem.text}; {problem.remedy}")
        print(f"warning: {problem.text}; {problem.remedy}")


def _show(number: str, access: UpstreamAccess | None) -> None:
    if access is None:
        print(f"{number} sends through the network")
        return
    upstream = access.upstream
    print(f"{number} sends through the Cloud API")
    print(f"base URL         {upstream.base_url}")
    print(f"phone number id  {upstream.phone_number_id}")
    print(f"WABA id          {upstream.waba_id}")
    print(f"rate             {upstream.rate} messages a second")
    print(f"state            {f'stopped: {upstream.fault}' if upstream.fault else 'working'}")
    print(f"changed          {choices.utc(upstream.changed_at)}")
    if access.credentials is None:
        print("credentials      cannot be opened: set them again")
        return
    print(f"callback         /cloud/callbacks/{access.credentials.callback_secret}")
    print(f"verify token     {access.credentials.verify_token}")
