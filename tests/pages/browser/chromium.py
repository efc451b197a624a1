"""Debian's Chromium, and the watch that each of its windows is under."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Request, WebError, async_playwright, expect

from harness import packages

# Milliseconds for which an action or an expectation waits.
TIMEOUT = 30_000
# Log of a page whose request fails or whose process is away, for `PageWatch.allow`.
AWAY = r"Failed to load resource: (net::ERR_|the server responded with a status of 503)|htmx:error: Failed to fetch"

# Name of the focused element, and whether its outline is drawn and within the window.
FOCUS = """() => {
  const each = document.activeElement, style = getComputedStyle(each), box = each.getBoundingClientRect();
  return {
    name: each.textContent.trim() || each.getAttribute("aria-label") || each.name || each.id,
    outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    shown: box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth && box.bottom > 0
      && box.top < innerHeight,
  };
}"""


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run Chromium, which is installed if it is missing."""
    (path,) = packages.require(["chromium"], {"chromium": "chromium"})
    expect.set_options(timeout=TIMEOUT)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, chromium_sandbox=os.geteuid() != 0, args=["--disable-gpu"]
        )
        try:
            yield browser
        finally:
            await browser.close()


class PageWatch:
    """Watch of a browser's context: errors on the console, violations of a policy, requests to other hosts."""

    def __init__(self, context: BrowserContext) -> None:
        self._problems: list[str] = []
        self._allowed: list[re.Pattern[str]] = []
        context.on("console", self._logged)
        context.on("weberror", self._failed)
        context.on("request", self._requested)

    @property
    def problems(self) -> list[str]:
        """Everything that was seen and is not allowed."""
        return [each for each in self._problems if not any(allowed.search(each) for allowed in self._allowed)]

    def allow(self, pattern: str) -> None:
        """Do not count what matches, which the test causes."""
        self._allowed.append(re.compile(pattern))

    # Chromium also logs violations of a policy as errors.
    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._problems.append(f"{message.type} on the console: {message.text} ({message.location.get('url')})")

    def _failed(self, error: WebError) -> None:
        self._problems.append(f"error of a script: {error.error}")

    def _requested(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("blob", "data") and parts.hostname != "127.0.0.1":
            self._problems.append(f"request to another host: {request.url}")


class Contexts:
    """Contexts of a browser, which share nothing but the sessions that they are opened with."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._open: list[tuple[BrowserContext, PageWatch]] = []

    @property
    def watch(self) -> PageWatch:
        """Watch of the first context."""
        return self._open[0][1]

    async def open(self, **options: Any) -> tuple[BrowserContext, PageWatch]:
        """Open a context under watch. options: of Playwright's `new_context`"""
        context = await self._browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **options})
        context.set_default_timeout(TIMEOUT)
        watch = PageWatch(context)
        self._open.append((context, watch))
        return context, watch

    async def close(self) -> list[str]:
        """Close all contexts. Returns what their watches have seen."""
        found = []
        for context, watch in self._open:
            await context.close()
            found += watch.problems
        self._open = []
        return found
