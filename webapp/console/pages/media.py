"""Media: credentials for files that messages name by a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webapp.api.media_providers.schemas import MediaProviders
from webapp.api.media_providers.service import ProviderList
from webapp.console.page_request import PageRequest, Result
from webapp.console.pages.saving import SAVED, save
from webapp.console.render.pages import PageContent
from webapp.http import bodies

PATH = "/console/settings/media"
BEARER, BASIC = "bearer", "basic"


async def show(page: PageRequest) -> Result:
    """Show the media providers without their secrets."""
    return await _page(page, "", 200)


async def add(page: PageRequest) -> Result:
    """Add or replace a media provider, with the checks of `POST /v1/settings/application/media/providers`."""

    async def work() -> None:
        given = bodies.check(MediaProviders, [{"name": page.form.text("name"), "type": "www", "config": _config(page)}])
        await page.part(ProviderList).save(page.caller, given)

    return await save(page, PATH, work, _page)


async def delete(page: PageRequest) -> Result:
    """Delete a media provider."""
    return await save(page, PATH, lambda: page.part(ProviderList).delete(page.caller, page.form.text("name")), _page)


def _config(page: PageRequest) -> Mapping[str, Any]:
    form = page.form
    secret, hosts = form.raw("secret"), form.text("hosts").split()
    is_basic = form.text("kind") == BASIC
    config: dict[str, Any] = (
        {BASIC: {"username": form.text("username"), "password": secret}} if is_basic else {BEARER: secret}
    )
    return {**config, "hosts": hosts} if hosts else config


async def _page(page: PageRequest, problem: str, status: int) -> PageContent:
    found = await page.part(ProviderList).all(page.caller)
    form = page.form
    values = {
        "providers": [
            (one["name"], next((kind for kind in (BASIC, BEARER) if kind in one["config"]), ""), _hosts(one["config"]))
            for one in found
        ],
        "kinds": (BEARER, BASIC),
        "given": {name: form.raw(name) for name in ("name", "kind", "username", "hosts")},
        "problem": problem,
        "is_saved": page.query.is_set(SAVED),
    }
    return PageContent("media.html", values, status)


def _hosts(config: Mapping[str, Any]) -> str:
    return ", ".join(config.get("hosts") or ())
