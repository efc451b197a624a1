"""Profile and application settings in the console, changed as the API changes them."""

from __future__ import annotations

import httpx

from tests.webapp.conftest import Served
from tests.webapp.console.browser import Browser, check_common, check_page, forms
from tests.webapp.console.test_pages import PNG

PROFILE, APPLICATION = "/console/settings/profile", "/console/settings/application"
MAX_PHOTO = 5 * 1024 * 1024  # bytes, a literal of docs/api.md


async def send_photo(browser: Browser, content: bytes, token: str | None = None) -> httpx.Response:
    page = await browser.get(PROFILE)
    form = next(form for form in forms(page.text) if form.action == f"{PROFILE}/photo")
    data = {"csrf": form.fields["csrf"] if token is None else token}
    return await browser.http.post(form.action, data=data, files={"File": ("photo.png", content)})


async def test_a_photo_is_set_shown_and_deleted(console: Served, browser: Browser) -> None:
    assert (await browser.get(f"{PROFILE}/photo")).status_code == 404
    assert (await send_photo(browser, PNG)).status_code == 303
    stored = await console.http.get("/v1/settings/profile/photo")
    assert (stored.content, stored.headers["Content-Type"]) == (PNG, "image/png")
    page = await browser.get(PROFILE)
    check_page(page)
    assert f'src="{PROFILE}/photo"' in page.text
    shown = await browser.get(f"{PROFILE}/photo")
    check_common(shown)
    assert (shown.content, shown.headers["Content-Type"]) == (PNG, "image/png")
    assert shown.headers["Content-Security-Policy"].startswith("sandbox;")
    assert shown.headers["Content-Disposition"].startswith("attachment;")
    assert (await browser.submit(PROFILE, f"{PROFILE}/delete-photo")).status_code == 303
    assert (await console.http.get("/v1/settings/profile/photo")).status_code == 404


async def test_a_photo_needs_its_type_size_and_token(console: Served, browser: Browser) -> None:
    for content in (b"GIF89a", b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>", PNG + bytes(MAX_PHOTO)):
        response = await send_photo(browser, content)
        assert response.status_code == 400
        check_page(response)
    assert (await send_photo(browser, PNG + bytes(MAX_PHOTO * 2))).status_code == 413
    assert (await send_photo(browser, PNG, "0" * 64)).status_code == 403
    assert (await console.http.get("/v1/settings/profile/photo")).status_code == 404


async def test_a_form_without_a_file_takes_none(browser: Browser) -> None:
    data = {"csrf": "x", "text": "x"}
    response = await browser.http.post(f"{PROFILE}/about", data=data, files={"File": ("photo.png", PNG)})
    assert response.status_code == 400


async def test_the_business_fields_are_set(console: Served, browser: Browser) -> None:
    fields = {
        "address": "1 <Main> Street",
        "email": "desk@example.com",
        "vertical": "Other",
        "description": "Parcels",
        "websites": "https://example.com\nhttps://example.org",
    }
    assert (await browser.submit(PROFILE, f"{PROFILE}/business", fields)).status_code == 303
    stored = (await console.http.get("/v1/settings/business/profile")).json()["settings"]["business"]["profile"]
    assert stored == {**fields, "websites": ["https://example.com", "https://example.org"]}
    page = await browser.get(PROFILE)
    assert "1 &lt;Main&gt; Street" in page.text
    for wrong in ({"websites": "javascript:x"}, {"websites": "https://a.example " * 3}, {"address": "x" * 257}):
        response = await browser.submit(PROFILE, f"{PROFILE}/business", wrong)
        assert response.status_code == 400
        check_page(response)
        # The form keeps the typed values.
        assert next(iter(wrong.values())).strip() in response.text


async def test_application_settings_are_changed(console: Served, browser: Browser) -> None:
    async def stored() -> dict[str, object]:
        found = await console.http.get("/v1/settings/application")
        return dict(found.json()["settings"]["application"])

    page = await browser.get(APPLICATION)
    check_page(page)
    form = next(form for form in forms(page.text) if form.action == APPLICATION)
    before = await stored()
    assert form.fields["heartbeat_interval"] == str(before["heartbeat_interval"])
    changes = {"pass_through": "1", "media": ["image", "voice"], "heartbeat_interval": "7", "on_call_pager": "<b>"}
    assert (await browser.post(APPLICATION, {**form.fields, **changes})).status_code == 303
    after = await stored()
    assert after["pass_through"] is True
    # Boxes that are not ticked are off.
    assert after["notify_user_change_number"] is False
    assert after["garbagecollector_enable"] == {"messages": False, "media": False}
    assert after["media"] == {"auto_download": ["image", "voice"]}
    assert (after["heartbeat_interval"], after["on_call_pager"]) == (7, "<b>")
    assert after["webhooks"] == before["webhooks"]
    for name, value in (("heartbeat_interval", "0"), ("heartbeat_interval", "x"), ("media", "hologram")):
        response = await browser.post(APPLICATION, {**form.fields, name: value})
        assert response.status_code == 400
        check_page(response)
    assert await stored() == after
