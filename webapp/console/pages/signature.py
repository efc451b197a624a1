"""Check of a callback's signature, with the code of a receiver in three languages."""

from __future__ import annotations

import functools
import importlib.resources
import time
from collections.abc import Sequence

from webapp.console.operations import signatures
from webapp.console.page_request import PageRequest, Result
from webapp.console.render.pages import PageContent

FIELDS = ("secret", "event_id", "timestamp", "signatures", "body")
_EXAMPLES = (("Python", "verify.py.txt"), ("Node", "verify.mjs.txt"), ("Go", "verify.go.txt"))


async def show(page: PageRequest) -> Result:
    """Show the empty form."""
    return _page(page, None)


async def check(page: PageRequest) -> Result:
    """Check the signature in the form. Nothing of it is stored."""
    values = {name: page.form.raw(name) if name == "body" else page.form.text(name) for name in FIELDS}
    return _page(page, signatures.check(**values, now=time.time()))


def _page(page: PageRequest, result: signatures.SignatureCheck | None) -> PageContent:
    # The secret is not written back into the page.
    shown = {name: page.form.raw(name) for name in FIELDS if name != "secret"}
    return PageContent("signature.html", {"fields": shown, "result": result, "examples": examples()})


@functools.cache
def examples() -> Sequence[tuple[str, str]]:
    """Return the code of a receiver by language."""
    folder = importlib.resources.files("webapp.console") / "receivers"
    return [(language, (folder / name).read_text(encoding="utf-8")) for language, name in _EXAMPLES]
