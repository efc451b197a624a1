"""Deletion of templates together with the times to live that they give their messages."""

from __future__ import annotations

from collections.abc import Iterable

from tidings.storage.business import template_ttls, templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Connection
from tidings.wire.cloud.identity import template_id


def id_of(template: TemplateRow) -> str:
    """Return the Cloud API's id of a template."""
    return template_id(template.account, template.namespace, template.name, template.language)


async def remove(
    connection: Connection, account: str, of: Iterable[TemplateRow], *, kept: Iterable[TemplateRow] = ()
) -> None:
    """Remove the times to live of templates that are deleted, or new. The caller has locked the account's templates.

    kept: templates that keep theirs
    """
    gone = {id_of(template) for template in of} - {id_of(template) for template in kept}
    await template_ttls.remove(connection, account, gone)


async def delete_templates(
    connection: Connection, account: str, name: str, language: str | None, namespace: str | None
) -> int:
    """Delete a template as `templates.delete_templates` does, with the times to live. Returns the number of rows."""
    await templates.lock(connection, account)
    before = await templates.list_templates(connection, account)
    deleted = await templates.delete_templates(connection, account, name, language, namespace)
    if deleted:
        await remove(connection, account, before, kept=await templates.list_templates(connection, account))
    return deleted
