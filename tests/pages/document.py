"""HTML as a test reads it: a strict parser for pages of ours, and the rules that each page keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from urllib.parse import urlsplit

import html5lib
from html5lib.html5parser import ParseError

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Elements that may not stand in a paragraph, or in anything else that holds only words.
BLOCKS = {
    "article", "aside", "blockquote", "details", "div", "dl", "fieldset", "figure", "footer", "form", "h1", "h2", "h3",
    "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul",
}  # fmt: skip
PHRASING = {"p", "h1", "h2", "h3", "span", "bdi", "b", "i", "s", "em", "small", "code", "button", "label", "time"}
INTERACTIVE = {"a", "button", "details", "input", "label", "select", "textarea", "audio", "video", "summary"}
PARENTS = {
    "li": {"ul", "ol"},
    "figcaption": {"figure"},
    "summary": {"details"},
    "legend": {"fieldset"},
    "option": {"select"},
}
# Attributes whose URL a browser loads or submits to by itself.
LOADED = {"src", "action", "formaction", "poster", "hx-get", "hx-post", "data-stream"}


@dataclasses.dataclass(eq=False)
class Element:
    """Element of a page."""

    tag: str
    attributes: dict[str, str | None]
    parent: Element | None
    children: list[Element | str] = dataclasses.field(default_factory=list)

    def get(self, name: str) -> str:
        return self.attributes.get(name) or ""

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Return the elements inside with this tag and these attributes; a value of a class is one of several."""

        def fits(element: Element) -> bool:
            return (not tag or element.tag == tag) and all(
                value in element.get(name.strip("_")).split() if name == "class_" else element.get(name) == value
                for name, value in attributes.items()
            )

        return [element for element in self.walk() if fits(element)]

    def one(self, tag: str = "", **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found

    def above(self) -> Iterator[Element]:
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    @property
    def text(self) -> str:
        """Return the words, with single spaces."""
        return " ".join("".join(self._words()).split())

    def _words(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._words()
                if child.tag in BLOCKS or child.tag in ("li", "br", "bdi", "summary", "figcaption", "option"):
                    yield " "


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {}, None)
        self.at = self.root
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        element = Element(tag, dict(attrs), self.at)
        self.at.children.append(element)
        if tag not in VOID:
            self.at = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.at.tag != tag or self.at.parent is None:
            self.faults.append(f"</{tag}> closes <{self.at.tag}>")
            return
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def parse(page: str) -> Element:
    """Return the root of a page or fragment. Fails where elements are not closed in order."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert not parser.faults, parser.faults
    assert parser.at is parser.root, f"<{parser.at.tag}> is not closed"
    return parser.root


def faults(page: str, *, is_whole: bool = True) -> list[str]:
    """Return what is wrong with a page or fragment."""
    root = parse(page)
    reader = html5lib.HTMLParser(strict=True)
    try:
        (reader.parse if is_whole else reader.parseFragment)(page)
    except ParseError as error:
        return [f"not valid HTML: {error}"]
    elements = [element for element in root.walk() if element.tag]
    found = [fault for rule in _RULES for element in elements for fault in rule(element)]
    ids = [element.get("id") for element in elements if element.get("id")]
    found += [f"the id {each} is there twice" for each in sorted(set(ids)) if ids.count(each) > 1]
    labelled = {element.get("for") for element in root.all("label")}
    for element in elements:
        if element.tag in ("input", "select", "textarea") and element.get("type") != "hidden":
            is_named = element.get("id") in labelled or any(each.tag == "label" for each in element.above())
            if not is_named and not element.get("aria-label"):
                found.append(f"<{element.tag} name={element.get('name')}> has no label")
        if element.get("form") and not root.all("form", id=element.get("form")) and is_whole:
            found.append(f"there is no form {element.get('form')}")
    if is_whole:
        found += _of_whole(page, root)
    return found


def _of_whole(page: str, root: Element) -> Iterator[str]:
    if not page.startswith("<!DOCTYPE html>"):
        yield "no doctype"
    if not root.one("html").get("lang"):
        yield "no language"
    if len(root.all("h1")) != 1 or len(root.all("main")) != 1:
        yield "not one h1 and one main"
    if not root.one("title").text:
        yield "no title"
    polite = [each for each in root.walk() if each.get("aria-live") == "polite" or each.get("role") == "status"]
    if len(polite) != 1:
        yield f"{len(polite)} polite live regions"
    first = next(each for each in root.one("body").walk() if each.tag == "a")
    if first.get("href") != "#main" or root.one("main").get("id") != "main":
        yield "the first link does not skip to the content"


def _handlers_and_styles(element: Element) -> Iterator[str]:
    for name in element.attributes:
        if name.startswith("on") or name == "style" or name.startswith("hx-on"):
            yield f"<{element.tag}> has the attribute {name}"
    if element.tag == "style" or (element.tag == "script" and (element.children or not element.get("nonce"))):
        yield f"<{element.tag}> is inline or has no nonce"


def _places(element: Element) -> Iterator[str]:
    parent = element.parent
    assert parent is not None
    if element.tag in PARENTS and parent.tag not in PARENTS[element.tag] and parent.tag:
        yield f"<{element.tag}> in <{parent.tag}>"
    if parent.tag in ("ul", "ol") and element.tag != "li":
        yield f"<{element.tag}> in <{parent.tag}>"
    above = list(element.above())
    if element.tag in BLOCKS and any(each.tag in PHRASING for each in above):
        yield f"<{element.tag}> in a paragraph"
    for each in above:
        if each.tag in ("a", "button") and element.tag in INTERACTIVE:
            yield f"<{element.tag}> in <{each.tag}>"
        if each.tag == "form" and element.tag == "form":
            yield "<form> in <form>"


def _names(element: Element) -> Iterator[str]:
    if element.tag in ("a", "button", "summary") and not (element.text or element.get("aria-label")):
        yield f"<{element.tag}> has no name"
    if element.tag == "img" and "alt" not in element.attributes:
        yield "<img> has no alt"
    if element.tag == "a" and element.get("target") and "noopener" not in element.get("rel").split():
        yield "<a target> without noopener"
    if element.tag == "table" and not element.all("caption"):
        yield "<table> has no caption"
    if element.tag == "th" and element.get("scope") not in ("col", "row"):
        yield "<th> has no scope"


def _urls(element: Element) -> Iterator[str]:
    """Nothing is loaded from another host; links lead only to the web, a map, or a place of ours."""
    for name, value in element.attributes.items():
        loads = name in LOADED or name.removeprefix("data-") in LOADED or (name == "href" and element.tag == "link")
        parts = urlsplit(value or "")
        if loads and (parts.scheme or parts.netloc):
            yield f"<{element.tag} {name}={value}> loads from another host"
        if name == "href" and parts.scheme not in ("", "http", "https", "geo"):
            yield f"<{element.tag} href={value}>"


def _htmx(element: Element) -> Iterator[str]:
    names = {name.removeprefix("data-") for name in element.attributes}
    if any(name.startswith("hx-") for name in names) and "hx-nonce" not in names:
        yield f"<{element.tag}> has attributes of htmx without the nonce"


_RULES: tuple[Callable[[Element], Iterator[str]], ...] = (_handlers_and_styles, _places, _names, _urls, _htmx)
