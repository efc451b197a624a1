"""Settings: webhook, users and tokens, numbers; each with what it restarts."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidings.storage.business import number_states, numbers
from tidings.wire.codes import ACCESS_DENIED, NOT_FOUND, PARAMETER_INVALID
from webapp.api.application_settings.schemas import Changes
from webapp.api.application_settings.service import AccountSettings
from webapp.api.users.schemas import NewPassword, NewUser
from webapp.api.users.service import Users
from webapp.auth.authenticator import address_of
from webapp.console.figures.doctor_runs import DoctorRuns
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.pages.saving import SAVED, save
from webapp.console.parts import ConsoleTables
from webapp.console.render import pages
from webapp.console.render.pages import PageContent
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

PATH = "/console/settings"
WEBHOOK_CHECK = "webhook"  # name of the check of `tidings doctor`
PAUSE, RESUME = "pause", "resume"  # actions about numbers


async def show(page: PageRequest) -> Result:
    """Show the settings of the user's number."""
    return await _page(page, "", 200)


async def change_webhook(page: PageRequest) -> Result:
    """Change the webhook and what is posted to it, with the checks of `PATCH /v1/settings/application`."""

    async def work() -> None:
        form = page.form
        statuses = {name: form.is_set(name) for name in ("sent", "delivered", "read")}
        await page.part(AccountSettings).change(
            page.caller,
            bodies.check(
                Changes,
                {
                    "webhooks": {
                        "url": form.text("url"),
                        "max_concurrent_requests": form.text("concurrency"),
                        "message": statuses,
                    },
                    "callback_backoff_delay_ms": form.text("backoff"),
                    "max_callback_backoff_delay_ms": form.text("max_backoff"),
                    "callback_persist": form.is_set("persist"),
                },
            ),
        )

    return await _saved(page, work)


async def test_webhook(page: PageRequest) -> Result:
    """Post a test to the webhook of each number."""
    page.part(DoctorRuns).start(post=True)
    return redirect(PATH, {"tested": "1"})


async def create_user(page: PageRequest) -> Result:
    """Create an ordinary user."""

    async def work() -> None:
        given = {"username": page.form.text("username"), "password": page.form.raw("password")}
        wanted = bodies.check(NewUser, given)
        await page.part(Users).create(page.caller, wanted.username, wanted.password)

    return await _saved(page, work)


async def set_password(page: PageRequest) -> Result:
    """Set the password of a user, which ends the user's tokens."""

    async def work() -> None:
        wanted = bodies.check(NewPassword, {"password": page.form.raw("new_password")})
        name = page.form.text("user")
        address = address_of(page.request)
        await page.part(Users).set_password(page.caller, name, wanted.password, old_password=None, address=address)

    return await _saved(page, work)


async def end_tokens(page: PageRequest) -> Result:
    """End all tokens of a user, and with them the sessions of the console."""
    return await _saved(page, lambda: page.part(Users).end_tokens(page.caller, page.form.text("user")))


async def delete_user(page: PageRequest) -> Result:
    """Delete a user."""
    return await _saved(page, lambda: page.part(Users).delete(page.caller, page.form.text("user")))


async def change_number(page: PageRequest) -> Result:
    """Pause or resume a further number, as `tidings number` does."""

    async def work() -> None:
        number, by = page.form.text("number"), f"{page.caller.username} (console)"
        if (action := page.form.text("action")) not in (PAUSE, RESUME):
            raise InvalidRequest.because(PARAMETER_INVALID, pages.text("settings", "unknown_action"))
        change = functools.partial(
            number_states.change, number=number, is_paused=action == PAUSE, by=by, refuses_first=True
        )
        try:
            await page.part(ConsoleTables).database.commit(change)
        except number_states.NumberIsFirst:
            raise InvalidRequest.because(ACCESS_DENIED, pages.text("settings", "first_number")) from None
        except number_states.NumberMissing:
            raise InvalidRequest.because(NOT_FOUND, pages.text("settings", "unknown_number")) from None
        except number_states.NumberBeingRemoved:
            raise InvalidRequest.because(PARAMETER_INVALID, pages.text("settings", "removed_number")) from None

    return await _saved(page, work)


async def _saved(page: PageRequest, work: Callable[[], Awaitable[object]]) -> Result:
    return await save(page, PATH, work, _page)


async def _page(page: PageRequest, problem: str, status: int) -> PageContent:
    caller = page.caller
    found = await page.part(AccountSettings).find(caller)
    async with page.part(ConsoleTables).database.reading() as connection:
        present = await numbers.list_numbers(connection)
    is_first = any(row.is_first and row.number == caller.account for row in present)
    report = page.part(DoctorRuns).report
    values = {
        "webhook": found.webhooks,
        "application": found,
        "rows": _flat(dataclasses.asdict(found)),
        "users": await page.part(Users).list(caller),
        "numbers": present if is_first else [row for row in present if row.number == caller.account],
        "problem": problem,
        "is_saved": page.query.is_set(SAVED),
        "is_tested": page.query.is_set("tested"),
        "is_running": report.is_running,
        "test": [finding for finding in report.findings if finding.check.startswith(WEBHOOK_CHECK)],
    }
    return PageContent("settings.html", values, status)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as rows of dotted names and values in JSON."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", json.dumps(value, ensure_ascii=False)))
    return rows
