"""Words of the pages stand in one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handset.web import strings

WEB = Path(strings.__file__).parent
TEMPLATES = sorted((WEB / "templates").glob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_no_words(path: Path) -> None:
    text = path.read_text()
    # Blocks within tags have names of classes and data, no words.
    text = re.sub(r"\{% block body_(class|data) %\}.*?\{% endblock %\}", "", text)
    named = re.findall(r'(?:aria-label|title|alt)="([^"]*)"', text)
    spoken = [re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", each) for each in named]
    inside = re.sub(r"<[^>]*>", "", re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text, flags=re.DOTALL))
    assert re.findall(r"[A-Za-z]{2,}", " ".join([*spoken, inside])) == []
    quoted = re.findall(r'(?:or|else|if) "([A-Z][a-z]+[^"]*)"', text)
    assert quoted == []


def test_each_word_is_used() -> None:
    sources = "".join(path.read_text() for path in (*TEMPLATES, *WEB.glob("*.py")) if path.name != "strings.py")
    names = [name for name in vars(strings) if name.isupper()]
    unused = [name for name in names if not re.search(rf"\b(words|strings)\.{name}\b", sources)]
    assert unused == []


def test_the_script_has_no_words() -> None:
    script = re.sub(r"^\s*//.*$|// .*$", "", (WEB / "static" / "handset.js").read_text(), flags=re.MULTILINE)
    assert re.findall(r'["`]([A-Z][a-z]+ [^"`]*)["`]', script) == []
