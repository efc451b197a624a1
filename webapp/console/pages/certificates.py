"""Certificates: the one of the API, and the authorities that the webhook's certificate is verified with."""

from __future__ import annotations

from webapp.api.certificates.service import Certificates
from webapp.console.page_request import PageRequest, Result
from webapp.console.pages.saving import SAVED, save
from webapp.console.render.pages import PageContent
from webapp.http.errors import InvalidRequest
from webapp.http.pem import CertificateBundle

PATH = "/console/settings/certificates"


async def show(page: PageRequest) -> Result:
    """Show the certificates without the private key."""
    return await _page(page, "", 200)


async def set_api(page: PageRequest) -> Result:
    """Set the certificate of the API, with the checks of `POST /v1/certificates/external`."""
    pem = page.form.text("bundle").encode()
    return await save(page, PATH, lambda: page.part(Certificates).set_external(page.caller, pem), _page)


async def set_webhook(page: PageRequest) -> Result:
    """Store the authorities that the webhook's certificate is verified with."""
    pem = page.form.text("pem").encode()
    return await save(page, PATH, lambda: page.part(Certificates).set_webhook_authorities(page.caller, pem), _page)


async def delete_webhook(page: PageRequest) -> Result:
    """Verify the webhook's certificate with the system's authorities again."""
    return await save(page, PATH, lambda: page.part(Certificates).delete_webhook_authorities(page.caller), _page)


async def _page(page: PageRequest, problem: str, status: int) -> PageContent:
    api = await _api(page)
    webhook = await _webhook(page)
    values = {
        "names": api.names if api is not None else (),
        "ends": int(api.ends.timestamp() * 1000) if api is not None else None,
        "authorities": api.authorities.decode() if api is not None else "",
        "has_tls": page.part(Certificates).server is not None,
        "webhook": webhook,
        "given": page.form.raw("pem", webhook),
        "problem": problem,
        "is_saved": page.query.is_set(SAVED),
    }
    return PageContent("certificates.html", values, status)


async def _api(page: PageRequest) -> CertificateBundle | None:
    try:
        return await page.part(Certificates).external(page.caller)
    except InvalidRequest:
        return None


async def _webhook(page: PageRequest) -> str:
    try:
        return (await page.part(Certificates).webhook_authorities(page.caller)).decode("ascii", "replace")
    except InvalidRequest:
        return ""
