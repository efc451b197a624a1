"""Times to live that templates give their messages, in the settings of the owner of a WABA."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import cloud_settings
from tidings.storage.business.cloud_settings import CloudSettingsRow

KIND = "message_send_ttl_seconds"


async def list_ttls(connection: AsyncConnection, account: str) -> Mapping[str, int]:
    """Return the seconds, -1 for the longest time, by the Cloud API's id of the template."""
    return await cloud_settings.find(connection, account, KIND)


async def put(connection: AsyncConnection, account: str, template_id: str, seconds: int | None) -> None:
    """Set the seconds of a template; None for none. The caller has locked the account's templates."""
    known = dict(await list_ttls(connection, account))
    if known.get(template_id) == seconds:
        return
    known.pop(template_id, None)
    if seconds is not None:
        known[template_id] = seconds
    await cloud_settings.put(connection, CloudSettingsRow(account, KIND, known))


async def remove(connection: AsyncConnection, account: str, template_ids: Collection[str]) -> None:
    """Remove the seconds of templates. The caller has locked the account's templates."""
    known = await list_ttls(connection, account)
    left = {template_id: seconds for template_id, seconds in known.items() if template_id not in template_ids}
    if left != known:
        await cloud_settings.put(connection, CloudSettingsRow(account, KIND, left))
