"""Users as the Cloud API's webhooks list them in `contacts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coreapp.cloud_users import ShownUser


def describe(user: ShownUser, name: str = "") -> Mapping[str, Any]:
    """Return an entry of `contacts`.

    name: name in the profile; empty for none
    """
    profile = {"name": name or user.name}
    if user.username:
        profile["username"] = user.username
    described: dict[str, Any] = {"profile": profile}
    if user.number:
        described["wa_id"] = user.number
    if user.user_id:
        described["user_id"] = user.user_id
    return described
