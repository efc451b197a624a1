"""HTML pages from templates. Every value is escaped; every text comes from `strings.toml`."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any

import markupsafe

from tidings.pages import formatting, printable, templates
from tidings.pages.assets import PageAssets
from webapp.console.render import texts

# Block of a template whose content is replaced while the page is open.
LIVE = "live"


class _Strings:
    """Texts of one table of `strings.toml`, as attributes. A missing one raises an error."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        for name, value in table.items():
            setattr(self, name, _Strings(value) if isinstance(value, dict) else value)


@functools.cache
def strings() -> Mapping[str, Any]:
    """Return all texts of the console, by table."""
    content = (importlib.resources.files("webapp.console") / "strings.toml").read_text(encoding="utf-8")
    return tomllib.loads(content)


def text(table: str, name: str, **values: object) -> str:
    """Return one text with `values` in the place of its fields."""
    return str(strings()[table][name]).format(**values)


@dataclasses.dataclass(frozen=True, slots=True)
class PageContent:
    """Page to be rendered: a template and its values."""

    template: str
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    status: int = 200


@dataclasses.dataclass(frozen=True, slots=True)
class LivePart:
    """Rendered part of a page that is replaced while the page is open."""

    html: markupsafe.Markup
    digest: str  # hash of the HTML; empty for a page without such a part


class PageTemplates:
    """The templates of the console."""

    def __init__(self, assets: PageAssets) -> None:
        self._environment = templates.environment("webapp.console")
        self._environment.globals.update(
            t=_Strings(strings()),
            asset=assets.url,
            utc=texts.utc,
            iso=texts.iso,
            duration=texts.duration,
            count=texts.count,
            rate=texts.rate,
        )
        self._environment.filters["fill"] = _fill
        self._environment.filters["formatted"] = formatting.formatted
        self._environment.filters["label"] = printable.label

    def render(self, page: PageContent, common: Mapping[str, Any], live: LivePart | None = None) -> str:
        """Return the HTML of a page.

        common: values that every page has
        live: the part that is replaced while the page is open, if it is already rendered
        """
        live = live or self.live_part(page, common)
        template = self._environment.get_template(page.template)
        return template.render({**common, **page.values, "digest": live.digest, "live": live.html})

    def live_part(self, page: PageContent, common: Mapping[str, Any]) -> LivePart:
        """Render the part of a page that is replaced while it is open."""
        template = self._environment.get_template(page.template)
        block = template.blocks.get(LIVE)
        if block is None:
            return LivePart(markupsafe.Markup(), "")
        # Values that differ at each rendering without a change of what is shown.
        values = {**common, **page.values, "digest": "", "nonce": ""}
        content = "".join(block(template.new_context(values)))
        digest = hashlib.blake2b(content.encode(), digest_size=12).hexdigest()
        return LivePart(markupsafe.Markup(content), digest)  # noqa: S704


def _fill(pattern: str, **values: object) -> markupsafe.Markup:
    """Fill the fields of a text, whose values are escaped."""
    return markupsafe.escape(pattern).format(**values)
