"""Accessibility of a page by axe (WCAG 2.2 AA and best practices), in both colour schemes.

The context needs `bypass_csp=True`: the policy of a page admits no other script.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Page

SCRIPT = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def violations(page: Page) -> list[str]:
    """Return the violations of the shown page, each with the rule, the scheme and the element."""
    source = await asyncio.to_thread(SCRIPT.read_text)
    found = []
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.evaluate(source)
        result: dict[str, Any] = await page.evaluate(
            "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", RULES
        )
        assert len(result["passes"]) > 5, "axe has checked something"
        found += [
            f"{violation['id']} ({scheme}): {node['html'][:200]}: {node.get('failureSummary', '')[:300]}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]
    return found
