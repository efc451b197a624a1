"""Users that a message names by their id (BSUID) instead of a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidings.aio.lru import LRU
from tidings.storage.business import cloud_users
from tidings.storage.database import Database
from tidings.testing import numbers
from tidings.wire.cloud import user_ids
from tidings.wire.cloud.codes import USER_ID_UNUSABLE
from webapp.api.cloud import errors
from webapp.api.messages.schemas import TemplateMessage
from webapp.api.templates.buttons import OTP
from webapp.api.templates.service import Templates

RECIPIENT = "recipient"
_CACHED = 100_000  # users


class CloudUsers:
    """Users whose ids webhooks have named, of all portfolios."""

    def __init__(self, database: Database, *, enabled: bool, owner_of: Callable[[str], str]) -> None:
        """Create the cache.

        enabled: whether users have ids
        owner_of(number): returns the number that owns the WABA of a business number
        """
        self._database = database
        self._owner_of = owner_of
        self._enabled = enabled
        # By owner of the WABA, and id.
        self._peers: LRU[tuple[str, str], str] = LRU(_CACHED)

    def visible(self, number: str) -> str:
        """Return a number as ids of messages contain it: empty for one that is not visible."""
        return numbers.visible(number, with_ids=self._enabled)

    def named(self, parameters: Mapping[str, Any]) -> str:
        """Return the id of the user that a message is addressed to; empty for a number. `to` has precedence.

        Raises `GraphError` for a text that is no id.
        """
        if not self._enabled:
            return ""
        to, given = parameters.get("to"), parameters.get(RECIPIENT)
        if to is not None:
            return to if isinstance(to, str) and user_ids.is_user_id(to) else ""
        if given is None:
            return ""
        if not isinstance(given, str) or not user_ids.is_user_id(given):
            raise errors.not_valid(f"{RECIPIENT}: should be the id of a user, such as US.13491208655302741918")
        return given

    async def find_number(self, account: str, user_id: str) -> str:
        """Return the number of a user. Raises `GraphError` for an id that this portfolio does not have.

        account: business number that sends
        """
        owner = self._owner_of(account)
        found = self._peers.get((owner, user_id))
        if found is None:
            async with self._database.reading() as connection:
                found = await cloud_users.find_peer(connection, owner, user_id)
            if not found:
                raise errors.coded(USER_ID_UNUSABLE, f"{user_id[:40]} is not the id of a user in this portfolio")
            self._peers.put((owner, user_id), found)
        return found


async def require_usable(templates: Templates, account: str, message: TemplateMessage) -> None:
    """Raise `GraphError` for a template with a one-time password, which needs a number."""
    template = message.template
    found, _ = await templates.find(account, template.name, template.language.code, template.namespace)
    for row in found:
        buttons = [button for part in row.components for button in part.get("buttons") or ()]
        if any(button.get("type") == OTP for button in buttons):
            raise errors.coded(USER_ID_UNUSABLE, "templates with one-time passwords cannot be sent to the id of a user")
