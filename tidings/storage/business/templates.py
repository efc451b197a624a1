"""Message templates, with which a business may start a conversation: one row per namespace, name and language."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business import changes, template_events
from tidings.storage.business.tables import metadata
from tidings.storage.business.template_events import TemplateEvent
from tidings.storage.database import insert_or_ignore

# Increases with each change of an account's templates, so that a process that caches them detects it by a short query.
versions = metadata.table(
    "template_versions",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
)


POSITIONAL, NAMED = "POSITIONAL", "NAMED"  # formats of parameters
# Statuses that have an effect here. Templates in other statuses are imported.
APPROVED, PENDING, REJECTED, PAUSED, DISABLED = "APPROVED", "PENDING", "REJECTED", "PAUSED", "DISABLED"
UNRATED = "UNKNOWN"  # quality of a template that has not been rated
NO_REASON = "NONE"  # reason of a status for which no other one is given
Key = tuple[str, str, str]  # namespace, name, language

_NAMESPACES = uuid.UUID("5c2d4f5e-9f0b-4c58-9d0c-2f1d1c8a7b10")


def default_namespace(account: str) -> str:
    """Return the namespace of an account's templates, which is constant."""
    return str(uuid.uuid5(_NAMESPACES, account)).replace("-", "_")


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateRow:
    """Template in one language of a namespace."""

    account: Annotated[str, types.key(20)]
    name: Annotated[str, types.key(512)]
    language: Annotated[str, types.key(16)]
    namespace: Annotated[str, types.key(64)]
    category: Annotated[str, types.key(32)]
    # APPROVED, or the reason why it cannot be sent: PENDING, REJECTED, PAUSED, DISABLED …
    status: Annotated[str, types.key(16)]
    # As in the API: HEADER, BODY, FOOTER, BUTTONS …
    components: Annotated[Sequence[dict[str, Any]], types.json(list[dict[str, Any]])]
    created_at: types.UnixMilliseconds
    # `POSITIONAL` for numbered parameters, `NAMED` for named ones.
    parameter_format: Annotated[str, types.key(16)] = POSITIONAL
    # Time of the database's clock at which a PENDING or PAUSED template is approved; None: by the operator only.
    review_at: Annotated[int | None, types.milliseconds()] = None
    # Why it is REJECTED; None for no reason and in other statuses.
    rejected_reason: Annotated[str | None, types.key(32)] = None
    # GREEN, YELLOW, RED or UNKNOWN, and when it was rated; None: it has not been rated.
    quality: Annotated[str | None, types.key(16)] = None
    quality_at: Annotated[int | None, types.milliseconds()] = None
    # Category before the last change of it; None for none.
    previous_category: Annotated[str | None, types.key(32)] = None
    # Times of the edits of the last 30 days that count against the limit, Unix milliseconds.
    edits: Annotated[Sequence[int], types.json(list[int], 255), sa.DefaultClause("[]")] = dataclasses.field(
        default_factory=list
    )
    # Pauses so far that count: the first two end by themselves, instead of a third one the template is disabled.
    pauses: Annotated[int, sa.Integer(), sa.DefaultClause("0")] = 0
    # Announced category, and the time of the database's clock at which it applies; None for none.
    next_category: Annotated[str | None, types.key(32)] = None
    category_at: Annotated[int | None, types.milliseconds()] = None

    @property
    def key(self) -> Key:
        """Return the unique key among the account's templates: namespace, name and language."""
        return self.namespace, self.name, self.language


table = metadata.table_of(TemplateRow, "templates", key=("account", "namespace", "name", "language"))


async def add_template(connection: AsyncConnection, template: TemplateRow) -> bool:
    """Add a new template. Returns false when its namespace has one of that name in that language."""
    await lock(connection, template.account)
    if await find_template(connection, template) is not None:
        return False
    await connection.execute(table.insert(), [dataclasses.asdict(template)])
    await _bump(connection, template.account)
    return True


async def find_template(connection: AsyncConnection, like: TemplateRow) -> TemplateRow | None:
    """Find the template with the account and the key of another."""
    found = await _find(connection, _named(like.account, like.name, like.language, like.namespace))
    return found[0] if found else None


async def put_templates(
    connection: AsyncConnection,
    account: str,
    templates: Sequence[TemplateRow],
    *,
    reason: str = NO_REASON,
    info: Mapping[str, str] | None = None,
) -> None:
    """Add templates of an account, and replace those with the same keys. Changed values are to be reported.

    reason, info: of all changes of the status, as `TemplateEvent` has them; None for no words
    """
    if not templates:
        return
    version = await lock(connection, account)
    before = {template.key: template for template in await list_templates(connection, account)}
    for template in templates:
        named = _named(account, template.name, template.language, template.namespace)
        await connection.execute(table.delete().where(named))
    await connection.execute(table.insert(), [dataclasses.asdict(template) for template in templates])
    changed = []
    for template in templates:
        stored = before.get(template.key)
        if stored is not None:
            changed += [(template, kind, old, new) for kind, old, new in _differences(stored, template)]
    await _report(connection, account, version + 1, changed, reason=reason, info=info)
    await _bump(connection, account)


async def apply_due(connection: AsyncConnection, account: str) -> int:
    """Approve the templates of an account whose review or pause has ended, and apply announced categories that are due.

    Returns the number of templates.
    """
    await lock(connection, account)
    now = database_clock.now(connection)
    ended = sa.and_(_waiting(account), table.c.review_at <= now)
    moved = sa.and_(_announced(account), table.c.category_at <= now)
    changed = {
        found.key: dataclasses.replace(found, status=APPROVED, review_at=None)
        for found in await _find(connection, ended)
    }
    for found in await _find(connection, moved):
        changed[found.key] = recategorised(changed.get(found.key, found), str(found.next_category))
    await put_templates(connection, account, list(changed.values()))
    return len(changed)


async def next_due(connection: AsyncConnection, account: str) -> float | None:
    """Return the seconds until `apply_due` changes the next template, at most 0 if one is due; None for none."""
    left = []
    for chosen, column in ((_waiting(account), table.c.review_at), (_announced(account), table.c.category_at)):
        query = sa.select(sa.func.min(column) - database_clock.now(connection)).where(chosen)
        left.append((await connection.execute(query)).scalar_one())
    return min((int(found) / 1000 for found in left if found is not None), default=None)


def recategorised(template: TemplateRow, category: str) -> TemplateRow:
    """Return a template in another category, without an announced one."""
    previous = template.category if category != template.category else template.previous_category
    return dataclasses.replace(
        template, category=category, previous_category=previous, next_category=None, category_at=None
    )


async def delete_templates(
    connection: AsyncConnection, account: str, name: str, language: str | None = None, namespace: str | None = None
) -> int:
    """Delete a template in one or all languages and one or all namespaces. Returns the number of rows deleted.

    The deletions are to be reported.
    """
    version = await lock(connection, account)
    named = _named(account, name, language, namespace)
    found = await _find(connection, named)
    if found:
        await connection.execute(table.delete().where(named))
        deleted = [(row, template_events.STATUS, row.status, template_events.DELETED) for row in found]
        await _report(connection, account, version + 1, deleted, reason=None)
        await _bump(connection, account)
    return len(found)


async def list_templates(connection: AsyncConnection, account: str) -> list[TemplateRow]:
    """List all templates of an account, by name, language and namespace."""
    return await _find(connection, table.c.account == account)


async def lock(connection: AsyncConnection, account: str) -> int:
    """Lock the account's templates against other changes until the end of the transaction. Returns their version."""
    # The row must exist before it can be locked.
    await connection.execute(insert_or_ignore(connection, versions), [{"account": account, "version": 0}])
    locked = sa.select(versions.c.version).where(versions.c.account == account).with_for_update()
    return int((await connection.execute(locked)).scalar_one())


async def find_version(connection: AsyncConnection, account: str) -> int:
    """Return the version of the account's templates, which increases with each change; 0 if there was none."""
    statement = sa.select(versions.c.version).where(versions.c.account == account)
    return (await connection.execute(statement)).scalar() or 0


def _named(account: str, name: str, language: str | None, namespace: str | None) -> sa.ColumnElement[bool]:
    found = [table.c.account == account, table.c.name == name]
    if language is not None:
        found.append(table.c.language == language)
    if namespace is not None:
        found.append(table.c.namespace == namespace)
    return sa.and_(*found)


def _waiting(account: str) -> sa.ColumnElement[bool]:
    """Return the condition of templates that are approved at some time."""
    return sa.and_(table.c.account == account, table.c.status.in_((PENDING, PAUSED)), table.c.review_at.is_not(None))


def _announced(account: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.account == account, table.c.category_at.is_not(None))


async def _find(connection: AsyncConnection, chosen: sa.ColumnElement[bool]) -> list[TemplateRow]:
    rows = await connection.execute(
        sa.select(table).where(chosen).order_by(table.c.name, table.c.language, table.c.namespace)
    )
    return [TemplateRow(*row) for row in rows]


def _differences(before: TemplateRow, after: TemplateRow) -> Iterator[tuple[str, str, str]]:
    """Yield kind, old value and new value of each change that is reported."""
    if before.status != after.status:
        yield template_events.STATUS, before.status, after.status
    if (before.quality or UNRATED) != (after.quality or UNRATED):
        yield template_events.QUALITY, before.quality or UNRATED, after.quality or UNRATED
    if before.category != after.category:
        yield template_events.CATEGORY, before.category, after.category
    announced = after.next_category, after.category_at
    if after.next_category is not None and announced != (before.next_category, before.category_at):
        yield template_events.NEXT_CATEGORY, after.category, after.next_category
    if without_examples(before.components) != without_examples(after.components):
        yield template_events.COMPONENTS, "", ""


def without_examples(components: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return components without examples, which recipients do not see. Those of files are links that differ between two
    reads of the Cloud API.
    """
    return [
        {
            key: without_examples(value) if key == "buttons" and isinstance(value, list) else value
            for key, value in part.items()
            if key != "example"
        }
        for part in components
    ]


def _info(template: TemplateRow, kind: str, reached: str, words: Mapping[str, str]) -> Mapping[str, str]:
    """Return `TemplateEvent.info` of a change.

    reached: new value
    words: operator's texts about a status
    """
    if kind == template_events.NEXT_CATEGORY:
        return {template_events.AT: str((template.category_at or 0) // 1000)}
    if kind == template_events.COMPONENTS:
        return {kind: msgspec.json.encode(template.components).decode()}
    if kind != template_events.STATUS:
        return {}
    if reached == PAUSED and template.pauses and template_events.TITLE not in words:
        titles = template_events.PAUSE_TITLES
        return {template_events.TITLE: titles[min(template.pauses, len(titles)) - 1], **words}
    return words


async def _report(
    connection: AsyncConnection,
    account: str,
    version: int,
    changed: Sequence[tuple[TemplateRow, str, str, str]],
    *,
    reason: str | None,
    info: Mapping[str, str] | None = None,
) -> None:
    """Write the events of changes: template, kind, old value and new value of each.

    version: that the changes make
    """
    if not changed:
        return
    now = await database_clock.read(connection)
    await template_events.add(
        connection,
        [
            TemplateEvent(
                id=template_events.event_id(account, version, position, now),
                account=account,
                version=version,
                position=position,
                kind=kind,
                namespace=template.namespace,
                name=template.name,
                language=template.language,
                category=template.category,
                old_value=old,
                new_value=new,
                reason=reason if kind == template_events.STATUS else None,
                info=_info(template, kind, new, info or {}),
                created_at=now,
            )
            for position, (template, kind, old, new) in enumerate(changed)
        ],
    )


async def _bump(connection: AsyncConnection, account: str) -> None:
    await connection.execute(
        versions.update().where(versions.c.account == account).values(version=versions.c.version + 1)
    )
    await changes.note(connection, changes.TEMPLATES)
