"""Notices of the Cloud API that a user has got another business-scoped id, as after a change of the number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidings.wire.cloud import user_ids

CHANGED_NUMBER: Final = "user_changed_number"
CHANGED_USER_ID: Final = "user_changed_user_id"

_FROM = re.compile(r" changed from (\S+) to ")


def ids_of(system: Any, user_id: str) -> tuple[str, str]:
    """Return the earlier and the new id of a user in a notice; `user_id` and an empty text for anything else.

    system: `system` of a message
    user_id: id of the message's sender; empty for none
    """
    if not isinstance(system, Mapping) or system.get("type") not in (CHANGED_NUMBER, CHANGED_USER_ID):
        return user_id, ""
    new = system.get("user_id")
    if not isinstance(new, str) or not user_ids.is_user_id(new):
        return user_id, ""
    if user_id in ("", new):
        # The sender is the user with the new id: the earlier one is in the text only.
        found = _FROM.search(str(system.get("body"))[:1_000])
        user_id = found[1] if found is not None and user_ids.is_user_id(found[1]) else ""
    return (user_id, new) if user_id and user_id != new else (user_id, "")
