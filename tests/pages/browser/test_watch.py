"""The watch over the pages detects violations, errors and failed requests."""

from __future__ import annotations

from playwright.async_api import expect

from tests.pages.browser import axe
from tests.pages.browser.chromium import AWAY, Contexts
from tests.pages.browser.scene import Scene


async def test_a_violation_of_the_policy_an_error_and_a_failed_request_are_seen(
    scene: Scene, contexts: Contexts
) -> None:
    context, watch = await contexts.open(storage_state=scene.session)
    page = await context.new_page()
    await page.goto(scene.handset_url)
    await expect(page.get_by_role("heading", name="Phones")).to_be_visible()
    assert watch.problems == []
    await page.evaluate("document.body.setAttribute('style', 'color: red')")
    await page.evaluate("try { document.body.innerHTML = '<p>x</p>' } catch { }")
    await page.evaluate("setTimeout(() => { throw new Error('on purpose') })")
    await page.evaluate("fetch('/handset/15550000009/list').then(() => 1)")
    await page.evaluate("fetch('https://evil.example/').catch(() => 1)")
    await page.wait_for_timeout(200)
    seen = " ".join(watch.problems)
    for part in ("style-src", "TrustedHTML", "on purpose", "status of 404", "connect-src"):
        assert part in seen, watch.problems
    watch.allow(".")


async def test_problems_that_a_test_allows_do_not_count(scene: Scene, contexts: Contexts) -> None:
    context, watch = await contexts.open(storage_state=scene.session)
    page = await context.new_page()
    await page.goto(scene.handset_url)
    await page.evaluate("fetch('http://127.0.0.1:1/', {mode: 'no-cors'}).catch(() => 1)")
    await page.evaluate("fetch('/handset/nowhere/at/all').then(() => 1)")
    watch.allow(AWAY)
    assert [problem for problem in watch.problems if "404" in problem]
    assert not [problem for problem in watch.problems if "ERR_CONNECTION" in problem]
    watch.allow("404|Content Security Policy")


async def test_axe_reports_an_inaccessible_page(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(storage_state=scene.session, bypass_csp=True)
    page = await context.new_page()
    await page.goto(scene.handset_url)
    await page.evaluate("document.querySelector('label').replaceWith(...document.querySelectorAll('label input'))")
    found = await axe.violations(page)
    assert [problem for problem in found if problem.startswith("label (light)")]
    assert [problem for problem in found if problem.startswith("label (dark)")]
