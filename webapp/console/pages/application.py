"""Application settings without a form of their own, named as in the API."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from tidings.storage.business.application_settings import MediaKind
from webapp.api.application_settings.schemas import Changes
from webapp.api.application_settings.service import AccountSettings
from webapp.console.page_request import PageRequest, Result
from webapp.console.pages.saving import SAVED, save
from webapp.console.render.pages import PageContent
from webapp.http import bodies

PATH = "/console/settings/application"
TICKS = (
    "garbagecollector_enable.messages",
    "garbagecollector_enable.media",
    "notify_user_change_number",
    "show_security_notifications",
    "pass_through",
    "skip_referral_media_download",
    "webhook_payload_conversation_pricingmodel_disabled",
    "axolotl_context_striping_disabled",
    "verbose_logging",
)
NUMBERS = ("heartbeat_interval", "unhealthy_interval")
WORDS = ("on_call_pager", "log_level")
MEDIA: Sequence[str] = get_args(MediaKind)
_MEDIA = "media"  # field of the form with each ticked kind


async def show(page: PageRequest) -> Result:
    """Show the settings."""
    return await _page(page, "", 200)


async def change(page: PageRequest) -> Result:
    """Change the settings, with the checks of `PATCH /v1/settings/application`."""

    async def work() -> None:
        await page.part(AccountSettings).change(page.caller, bodies.check(Changes, _changes(page)))

    return await save(page, PATH, work, _page)


def _changes(page: PageRequest) -> Mapping[str, Any]:
    changes: dict[str, Any] = {"media": {"auto_download": list(page.form.all(_MEDIA))}}
    for name in TICKS:
        outer, _, inner = name.partition(".")
        if inner:
            changes.setdefault(outer, {})[inner] = page.form.is_set(name)
        else:
            changes[outer] = page.form.is_set(name)
    return {**changes, **{name: page.form.text(name) for name in (*NUMBERS, *WORDS)}}


async def _page(page: PageRequest, problem: str, status: int) -> PageContent:
    found = await page.part(AccountSettings).find(page.caller)
    present = _flat(dataclasses.asdict(found))
    values = {
        "ticks": [(name, bool(present[name])) for name in TICKS],
        "fields": [(name, page.form.raw(name, str(present[name])), name in NUMBERS) for name in (*NUMBERS, *WORDS)],
        "media": [(kind, kind in found.media.auto_download) for kind in MEDIA],
        "problem": problem,
        "is_saved": page.query.is_set(SAVED),
    }
    return PageContent("application.html", values, status)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Mapping[str, Any]:
    """Return nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
