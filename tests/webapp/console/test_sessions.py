"""Login to the console, its sessions and forms."""

from __future__ import annotations

import re

import httpx
import jwt
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import PASSWORD, Serve, Served, basic
from tests.webapp.console.browser import Browser, check_headers, check_page
from tests.webapp.console.conftest import OPERATOR_KEY
from tests.webapp.roles import ordinary
from tidings.secrets.api_key import ApiKey

# Literal of docs/security.md: guesses at once at an address from which the user has logged in.
FAMILIAR = 20
LINK_KEY = ApiKey("key of the link that opens the console")


async def is_in(browser: Browser) -> bool:
    """Return whether the browser has a session."""
    response = await browser.get("/console")
    assert response.status_code in (200, 303)
    return response.status_code == 200


async def test_a_page_without_a_session_leads_to_the_login_and_back(unauthenticated_browser: Browser) -> None:
    response = await unauthenticated_browser.get("/console/messages?status=failed")
    assert response.status_code == 303
    assert response.headers["Location"] == "/console/login?next=%2Fconsole%2Fmessages%3Fstatus%3Dfailed"
    check_headers(response)
    page = response.headers["Location"]
    response = await unauthenticated_browser.submit(page, "/console/login", {"username": "admin", "password": PASSWORD})
    assert response.headers["Location"] == "/console/messages?status=failed"
    assert (await unauthenticated_browser.get("/console/messages?status=failed")).status_code == 200


@pytest.mark.parametrize(
    "target",
    ["https://example.com/", "//example.com/console", "//[", "/v1/users", "/console\\@example.com", "javascript:x"],
)
async def test_the_login_leads_to_no_other_site(unauthenticated_browser: Browser, target: str) -> None:
    fields = {"username": "admin", "password": PASSWORD, "next": target}
    response = await unauthenticated_browser.submit("/console/login", "/console/login", fields)
    assert response.status_code == 303
    assert response.headers["Location"] == "/console"


async def test_a_wrong_password_is_refused_and_guesses_are_limited(serve: Serve) -> None:
    served = await serve(clock=ManualClock(), console=True)
    await served.log_in()
    unauthenticated_browser = Browser.of(served)
    statuses = []
    for number in range(FAMILIAR + 1):
        fields = {"username": "admin", "password": f"guess {number}"}
        response = await unauthenticated_browser.submit("/console/login", "/console/login", fields)
        check_page(response)
        statuses.append(response.status_code)
        assert ("The user name or the password is wrong." in response.text) == (response.status_code == 401)
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert set(statuses) == {401, 429}
    assert not await is_in(unauthenticated_browser)
    await unauthenticated_browser.http.aclose()


async def test_the_cookie_on_loopback_is_http_only_and_strict(unauthenticated_browser: Browser) -> None:
    fields = {"username": "admin", "password": PASSWORD}
    response = await unauthenticated_browser.submit("/console/login", "/console/login", fields)
    cookies = response.headers.get_list("Set-Cookie")
    assert len(cookies) == 1
    assert re.fullmatch(r"tidings-console-0-session=[^;]+; Path=/console; HttpOnly; SameSite=Strict", cookies[0])


async def test_the_cookie_over_tls_has_the_host_prefix(console: Served) -> None:
    browser = Browser.of(console, "https://127.0.0.1")
    fields = {"username": "admin", "password": PASSWORD}
    response = await browser.submit("/console/login", "/console/login", fields)
    cookies = response.headers.get_list("Set-Cookie")
    assert len(cookies) == 1
    pattern = r"__Host-tidings-console-session=[^;]+; Path=/; Secure; HttpOnly; SameSite=Strict"
    assert re.fullmatch(pattern, cookies[0])
    assert await is_in(browser)


@pytest.mark.parametrize(("client", "host"), [("10.0.0.9", "127.0.0.1"), ("127.0.0.1", "console.example")])
async def test_plain_http_elsewhere_gets_no_login(serve: Serve, client: str, host: str) -> None:
    served = await serve(console=True, http_hosts=frozenset({"console.example"}))
    transport = httpx.ASGITransport(served.parts.app, client=(client, 1))
    browser = Browser(httpx.AsyncClient(base_url=f"http://{host}", transport=transport))
    response = await browser.get("/console/login")
    check_page(response)
    assert "<form" not in response.text
    await browser.get("/console/login")
    response = await browser.post("/console/login", {"username": "admin", "password": "secret"})
    assert response.status_code == 403
    await browser.http.aclose()


async def test_an_ordinary_user_gets_no_session(console: Served, unauthenticated_browser: Browser) -> None:
    await ordinary(console)
    fields = {"username": "observer", "password": PASSWORD}
    response = await unauthenticated_browser.submit("/console/login", "/console/login", fields)
    assert response.status_code == 403
    assert not unauthenticated_browser.cookie("session")


async def test_logout_ends_the_session_and_its_token(console: Served, browser: Browser) -> None:
    token = browser.cookie("session").split("~")[1]
    assert (await console.http.get("/v1/users", headers={"Authorization": f"Bearer {token}"})).status_code == 200
    kept = dict(browser.http.cookies)
    response = await browser.submit("/console", "/console/logout")
    assert response.status_code == 303
    assert not browser.cookie("session")
    assert (await console.http.get("/v1/users", headers={"Authorization": f"Bearer {token}"})).status_code == 401
    browser.http.cookies.update(kept)
    assert not await is_in(browser)


async def test_the_session_ends_with_the_tokens_of_the_user(console: Served, browser: Browser) -> None:
    assert (await console.http.delete("/v1/users/admin/tokens")).status_code == 200
    assert not await is_in(browser)


async def test_a_session_ends_after_30_idle_minutes_and_after_12_hours(serve: Serve) -> None:
    clock = ManualClock()
    served = await serve(clock=clock, console=True)
    await served.log_in()
    browser = Browser.of(served)
    await browser.log_in()
    clock.advance(1799)
    assert await is_in(browser)
    clock.advance(1801)
    assert not await is_in(browser)
    await browser.log_in()
    for _ in range(12 * 3600 // 1700):
        clock.advance(1700)
        assert await is_in(browser)
    clock.advance(1700)
    assert not await is_in(browser)
    await browser.http.aclose()


async def test_a_page_that_updates_itself_does_not_keep_its_session(serve: Serve) -> None:
    clock = ManualClock()
    served = await serve(clock=clock, console=True)
    await served.log_in()
    browser = Browser.of(served)
    await browser.log_in()
    for _ in range(3):
        clock.advance(590)
        response = await browser.get("/console", headers={"HX-Request": "true"})
        assert response.status_code == 200
    clock.advance(60)
    assert not await is_in(browser)
    await browser.http.aclose()


@pytest.mark.parametrize("changed", [0, 5, -1])
async def test_a_changed_cookie_is_no_session(browser: Browser, changed: int) -> None:
    for cookie in browser.http.cookies.jar:
        value = cookie.value or ""
        other = "0" if value[changed] != "0" else "1"
        position = changed % len(value)
        cookie.value = value[:position] + other + value[position + 1 :]
    assert not await is_in(browser)


async def test_a_form_without_its_token_is_refused(console: Served, browser: Browser) -> None:
    for token in ("", "0" * 64):
        response = await browser.post("/console/doctor", {"csrf": token})
        assert response.status_code == 403
        check_page(response)
    other = Browser.of(console)
    await other.log_in()
    page = await other.get("/console")
    stolen = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert stolen is not None
    assert (await browser.post("/console/logout", {"csrf": stolen[1]})).status_code == 403
    await other.http.aclose()


async def test_a_login_form_of_another_browser_is_refused(console: Served, unauthenticated_browser: Browser) -> None:
    other = Browser.of(console)
    page = await other.get("/console/login")
    token = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert token is not None
    fields = {"username": "admin", "password": PASSWORD, "csrf": token[1]}
    assert (await unauthenticated_browser.post("/console/login", fields)).status_code == 403
    await unauthenticated_browser.get("/console/login")
    assert (await unauthenticated_browser.post("/console/login", fields)).status_code == 403
    await other.http.aclose()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://example.com"},
        {"Origin": "//["},
    ],
)
async def test_a_form_of_another_site_is_refused(browser: Browser, headers: dict[str, str]) -> None:
    browser.http.headers.update(headers)
    assert (await browser.submit("/console", "/console/logout")).status_code == 403
    assert browser.cookie("session")


async def test_a_host_that_is_not_configured_is_refused(console: Served) -> None:
    browser = Browser.of(console)
    for host in ("attacker.example", "127.0.0.1.attacker.example", "localhost.attacker.example:80"):
        response = await browser.get("/console/login", headers={"Host": host})
        assert response.status_code == 421
    assert (await browser.get("/console/login", headers={"Host": "localhost:9090"})).status_code == 200
    await browser.http.aclose()


async def test_the_link_opens_the_console_once_after_the_first_password(serve: Serve) -> None:
    served = await serve(console=True, console_link=LINK_KEY, console_key=OPERATOR_KEY)
    browser = Browser.of(served)
    assert (await browser.get("/console/enter", params={"key": "another"})).status_code == 403
    # A preview of the link does not use it.
    assert (await browser.http.head("/console/enter", params={"key": LINK_KEY})).status_code == 200
    check_page(await browser.get("/console/enter", params={"key": LINK_KEY}))
    response = await browser.submit(f"/console/enter?key={LINK_KEY}", "/console/enter")
    assert (response.status_code, response.headers["Location"]) == (303, "/console/first-password")
    assert not await is_in(browser)
    page, action = "/console/first-password", "/console/first-password"
    check_page(await browser.get(page))
    response = await browser.submit(page, action, {"new_password": PASSWORD, "repeated": PASSWORD + "x"})
    assert response.status_code == 400
    response = await browser.submit(page, action, {"new_password": "short", "repeated": "short"})
    assert response.status_code == 400
    response = await browser.submit(page, action, {"new_password": "secret", "repeated": "secret"})
    assert response.status_code == 400
    response = await browser.submit(page, action, {"new_password": PASSWORD, "repeated": PASSWORD})
    assert (response.status_code, response.headers["Location"]) == (303, "/console")
    assert await is_in(browser)
    assert (await served.http.post("/v1/users/login", headers=basic("admin", PASSWORD))).status_code == 200
    again = Browser.of(served)
    assert (await again.get("/console/enter", params={"key": LINK_KEY})).status_code == 403
    assert not await is_in(again)
    for each in (browser, again):
        await each.http.aclose()


async def test_the_link_opens_the_console_of_an_installation_in_use(serve: Serve) -> None:
    served = await serve(console=True, console_link=LINK_KEY)
    await served.log_in()
    browser = Browser.of(served)
    # A preview of the link does not use it.
    assert (await browser.http.head("/console/enter", params={"key": LINK_KEY})).status_code == 200
    check_page(await browser.get("/console/enter", params={"key": LINK_KEY}))
    response = await browser.submit(f"/console/enter?key={LINK_KEY}", "/console/enter")
    assert (response.status_code, response.headers["Location"]) == (303, "/console")
    assert await is_in(browser)
    await browser.http.aclose()


async def test_a_login_with_the_first_password_must_change_it(serve: Serve) -> None:
    served = await serve(console=True)
    browser = Browser.of(served)
    fields = {"username": "admin", "password": "secret"}
    response = await browser.submit("/console/login", "/console/login", fields)
    assert (response.status_code, response.headers["Location"]) == (303, "/console/first-password")
    assert not await is_in(browser)
    page = "/console/first-password"
    response = await browser.submit(page, page, {"new_password": PASSWORD, "repeated": PASSWORD})
    assert response.status_code == 303
    assert await is_in(browser)
    # The permission ends with the password that it was given for.
    unauthenticated_browser = Browser.of(served)
    assert (await unauthenticated_browser.get(page)).status_code == 303
    await browser.http.aclose()


async def test_the_console_can_be_turned_off(serve: Serve) -> None:
    served = await serve(console=False)
    assert (await served.http.get("/console")).status_code == 404


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-IP"])
async def test_no_password_is_typed_behind_a_proxy_without_tls(unauthenticated_browser: Browser, name: str) -> None:
    fields = {"username": "admin", "password": PASSWORD}
    unauthenticated_browser.http.headers[name] = "127.0.0.1"
    page = await unauthenticated_browser.get("/console/login")
    assert 'name="password"' not in page.text
    del unauthenticated_browser.http.headers[name]
    await unauthenticated_browser.get("/console/login")
    unauthenticated_browser.http.headers[name] = "127.0.0.1"
    assert (await unauthenticated_browser.post("/console/login", fields)).status_code == 403
    assert not unauthenticated_browser.cookie("session")


async def test_a_session_holds_a_token_of_12_hours(console: Served, browser: Browser) -> None:
    token = browser.cookie("session").split("~")[1]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 12 * 3600
    assert {cookie.path for cookie in browser.http.cookies.jar} == {"/console"}


async def test_the_token_of_a_form_signs_no_cookie(console: Served, browser: Browser) -> None:
    page = await browser.get("/console")
    token = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert token is not None
    jti = jwt.decode(browser.cookie("session").split("~")[1], options={"verify_signature": False})["jti"]
    unauthenticated_browser = Browser.of(console)
    name = next(cookie.name for cookie in browser.http.cookies.jar if cookie.name.endswith("-form"))
    unauthenticated_browser.http.cookies.set(name, f"{jti}~{token[1]}", domain="127.0.0.1", path="/console")
    await unauthenticated_browser.get("/console/login")
    assert not unauthenticated_browser.cookie("form").startswith(jti)
    await unauthenticated_browser.http.aclose()
