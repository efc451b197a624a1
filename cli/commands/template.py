"""`tidings template`: creates, edits, imports, lists, reviews and deletes message templates."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pydantic

from cli import chosen_number, guard, template_decisions, upstream_templates
from cli.coreapp_client import CoreappClient
from cli.counts import counted
from cli.settings import CoreappSettings, NumberSettings
from cli.upstream_templates import TemplateOwner, UpstreamTemplates
from tidings.installation.settings import DatabaseSettings
from tidings.storage.business import templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Connection, Database
from tidings.wire.decoding import UNREADABLE
from webapp.api.templates import ttls
from webapp.api.templates.importing import Import, ImportPlan, plan
from webapp.api.templates.review import redefine
from webapp.api.templates.schemas import Definition, describe
from webapp.api.templates.upstream_changes import MIRRORED
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

Value = TypeVar("Value")
Model = TypeVar("Model", bound=pydantic.BaseModel)
Work = Callable[[Connection], Awaitable[Value]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create a template from a JSON file")
    edit = actions.add_parser("edit", help="give existing templates the category and components of a JSON file")
    for action in (create, edit):
        action.add_argument("file", metavar="FILE", help="one definition, or a list of them; - reads standard input")
    importing = actions.add_parser("import", help="create all templates of an export of the Graph API, or none")
    importing.add_argument(
        "file",
        metavar="FILE",
        help='{"data": [...]}, {"waba_templates": [...]} or the list alone; - reads standard input',
    )
    importing.add_argument("--namespace", help="namespace of templates without one (default: the account's own)")
    importing.add_argument("--replace", action="store_true", help="replace existing templates that differ")
    importing.add_argument("--partial", action="store_true", help="import valid templates even if others are refused")
    listing = actions.add_parser("list", help="list the templates")
    listing.add_argument("--json", action="store_true", help="print definitions that `create` accepts")
    delete = actions.add_parser("delete", help="delete a template")
    delete.add_argument("name", metavar="NAME")
    delete.add_argument("--language", help="only in this language (default: in all)")
    delete.add_argument("--namespace", help="only in this namespace (default: in all)")
    decisions = template_decisions.add_actions(actions.add_parser)
    for action in (create, edit, importing, listing, delete, *decisions):
        chosen_number.add_option(action)


def run(options: argparse.Namespace) -> int:
    """Read or change the database. Webapps notice a change within 1 second."""
    found = NumberSettings.read(os.environ)
    where, of = found.business, asyncio.run(_find_owner(found, options.number))
    account = of.owner
    if options.action == "list":
        return _list(where, account, as_json=options.json)
    if of.is_upstream:
        return asyncio.run(_change_upstream(CoreappSettings.read(os.environ), of, options))
    if options.action in ("create", "edit"):
        return _define(where, account, options)
    if options.action == "import":
        return _import(where, account, options)
    if options.action in template_decisions.ACTIONS:
        decide = functools.partial(template_decisions.decide, account=account, options=options)
        print(*asyncio.run(_change(where, decide)), sep="\n")
        return 0
    return _delete(where, account, options.name, options.language, options.namespace)


async def _find_owner(settings: NumberSettings, given: str | None) -> TemplateOwner:
    database = Database(settings.business, "business")
    try:
        return await upstream_templates.find_owner(database, settings.account, given)
    finally:
        await database.close()


async def _change_upstream(settings: CoreappSettings, of: TemplateOwner, options: argparse.Namespace) -> int:
    database = Database(settings.business, "business")
    try:
        known = UpstreamTemplates(database, CoreappClient.of(settings), of)
        if options.action in ("create", "edit"):
            change = known.create if options.action == "create" else known.edit
            for definition in _definitions(options.file):
                _print(await change(definition))
        elif options.action == "delete":
            await known.delete(options.name, options.language, options.namespace)
            print(f"{options.name} is deleted")
        else:
            raise guard.CommandFailure(MIRRORED)
    finally:
        await database.close()
    return 0


def _define(where: DatabaseSettings, account: str, options: argparse.Namespace) -> int:
    """Create or edit templates. Each is committed at once."""
    is_new = options.action == "create"
    for definition in _definitions(options.file):
        row = definition.row(account, int(time.time() * 1000))
        made = asyncio.run(_change(where, functools.partial(_add if is_new else _replace, row=row)))
        if made is None:
            problem = "a template {} in {} already exists" if is_new else "there is no template {} in {}"
            raise guard.CommandFailure(problem.format(row.name, row.language))
        _print(made)
    return 0


async def _add(connection: Connection, row: TemplateRow) -> TemplateRow | None:
    if not await templates.add_template(connection, row):
        return None
    await ttls.remove(connection, row.account, [row])
    return row


async def _replace(connection: Connection, row: TemplateRow) -> TemplateRow | None:
    """Give the template with the key of `row` its definition. Returns it, or None if there is none."""
    await templates.lock(connection, row.account)
    stored = {one.key: one for one in await templates.list_templates(connection, row.account)}.get(row.key)
    if stored is None:
        return None
    edited = redefine(stored, row)
    await templates.put_templates(connection, row.account, [edited])
    return edited


def _definitions(file: str) -> Sequence[Definition]:
    found = _read(file)
    if not isinstance(found, list):
        return [_checked(Definition, found)]
    return [_checked(Definition, one, f"[{index}]: ") for index, one in enumerate(found)]


def _print(row: TemplateRow) -> None:
    print(f"{row.name}  {row.language}  {row.status}  namespace {row.namespace}")


def _import(where: DatabaseSettings, account: str, options: argparse.Namespace) -> int:
    found = _read(options.file)
    data = found.get("data", found.get("waba_templates")) if isinstance(found, dict) else found
    wanted = _checked(Import, {"data": data, "namespace": options.namespace, "replace": options.replace})

    async def work(connection: Connection) -> ImportPlan:
        await templates.lock(connection, account)
        existing = await templates.list_templates(connection, account)
        made = plan(wanted, account, existing, int(time.time() * 1000))
        if options.partial or not made.refused:
            await ttls.remove(connection, account, made.keep, kept=existing)
            await templates.put_templates(connection, account, made.keep)
        return made

    made = asyncio.run(_change(where, work))
    for line in made.refused:
        print(f"refused  {line}")
    if made.refused and not options.partial:
        raise guard.CommandFailure(
            f"nothing was imported: {len(made.refused)} of {counted(len(wanted.data), 'template')} refused"
        )
    print(f"{len(made.keep)} imported, {len(made.unchanged)} existing, {len(made.refused)} refused")
    return 1 if made.refused else 0


def _read(file: str) -> Any:
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise guard.CommandFailure(f"{file} cannot be read: {error.strerror}") from error
    except UNREADABLE as error:
        raise guard.CommandFailure(f"{file} is not JSON: {error}") from error


def _checked(model: type[Model], value: object, where: str = "") -> Model:
    """Return a validated value. Raises `CommandFailure`. where: start of each error text"""
    try:
        return bodies.check(model, value)
    except InvalidRequest as error:
        raise guard.CommandFailure("; ".join(f"{where}{problem.details}" for problem in error.problems)) from error


def _list(where: DatabaseSettings, account: str, *, as_json: bool) -> int:
    found = asyncio.run(_change(where, lambda connection: templates.list_templates(connection, account)))
    if as_json:
        print(msgspec.json.format(msgspec.json.encode([describe(one) for one in found])).decode())
        return 0
    for one in found:
        body = next((part["text"] for part in one.components if part["type"] == "BODY"), "")
        print(f"{one.name}  {one.language}  {one.category}  {one.status}  {' '.join(body.split())[:60]}")
    print(counted(len(found), "template"))
    return 0


def _delete(where: DatabaseSettings, account: str, name: str, language: str | None, namespace: str | None) -> int:
    count = asyncio.run(
        _change(where, lambda connection: ttls.delete_templates(connection, account, name, language, namespace))
    )
    if not count:
        raise guard.CommandFailure(f"there is no template {name}{f' in {language}' if language else ''}")
    print(f"{count} deleted")
    return 0


async def _change(where: DatabaseSettings, work: Work[Value]) -> Value:
    database = Database(where, "business")
    try:
        async with database.transaction() as connection:
            return await work(connection)
    finally:
        await database.close()
