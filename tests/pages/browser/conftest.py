"""Fixtures of tests in a browser: one browser and one installation for all, and contexts under watch for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.pages.browser import scene as scenes
from tests.pages.browser.chromium import Contexts, chromium
from tests.pages.browser.scene import Scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of this folder in the event loop of the browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with scenes.running(tmp_path_factory.mktemp("pages"), browser) as scene:
        yield scene


@pytest_asyncio.fixture(loop_scope="session")
async def contexts(browser: Browser) -> AsyncIterator[Contexts]:
    """Contexts of one test. A problem that their watches have seen fails it."""
    contexts = Contexts(browser)
    yield contexts
    assert await contexts.close() == []


@pytest_asyncio.fixture(loop_scope="session")
async def handsets(scene: Scene) -> AsyncIterator[Scene]:
    """Installation, whose open phones are closed after the test."""
    yield scene
    await scene.close_phones()


@pytest_asyncio.fixture(loop_scope="session")
async def page(handsets: Scene, contexts: Contexts) -> Page:
    """Tab of a browser that has entered the page of handsets."""
    context, _ = await contexts.open(storage_state=handsets.session)
    return await context.new_page()
