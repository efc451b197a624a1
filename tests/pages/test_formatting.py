"""Formatting of received text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import document
from tidings.pages import formatting


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("hello", '<p dir="auto">hello</p>'),
        ("*bold* _it_ ~gone~ `code`", '<p dir="auto"><b>bold</b> <i>it</i> <s>gone</s> <code>code</code></p>'),
        ("*_both_*", '<p dir="auto"><b><i>both</i></b></p>'),
        ("2*3*4 a_b_c * no * ", '<p dir="auto">2*3*4 a_b_c * no * </p>'),
        (
            "one\r\ntwo\n\nthree",
            '<p dir="auto">one</p><p dir="auto">two</p><p dir="auto"><br></p><p dir="auto">three</p>',
        ),
        (
            "- a\n- b\n1. c",
            '<ul><li dir="auto">a</li><li dir="auto">b</li></ul><ol><li dir="auto" value="1">c</li></ol>',
        ),
        ("> quoted", '<blockquote dir="auto">quoted</blockquote>'),
        ("```x *y*\n<z>```", '<pre dir="auto">x *y*\n&lt;z&gt;</pre>'),
        ("<b>&\"'", '<p dir="auto">&lt;b&gt;&amp;&#34;&#39;</p>'),
        ("a\x00b", '<p dir="auto">a�b</p>'),
        ("javascript:alert(1)", '<p dir="auto">javascript:alert(1)</p>'),
    ],
)
def test_text_is_formatted(text: str, html: str) -> None:
    assert formatting.formatted(text) == html


@pytest.mark.parametrize(
    ("text", "address", "rest"),
    [
        ("see https://example.com/a_b_c?x=1&y=*2*.", "https://example.com/a_b_c?x=1&amp;y=*2*", "."),
        ("see http://example.com)", "http://example.com", ")"),
        ("see https://example.com/\u202eevil", "https://example.com/", "\u202eevil"),
    ],
)
def test_a_link_leads_to_its_words_and_gives_nothing_away(text: str, address: str, rest: str) -> None:
    html = formatting.formatted(text)
    link = f'<a href="{address}" target="_blank" rel="noopener noreferrer"><bdi>{address}</bdi></a>'
    assert html == f'<p dir="auto">see {link}{rest}</p>'


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTP://EXAMPLE.COM/a", "HTTP://EXAMPLE.COM/a"),
        ("javascript:alert(1)", ""),
        ("data:text/html,x", ""),
        ("//example.com", ""),
        ("https:example.com", ""),
        ("https://exa mple.com", ""),
        ("https://example.com/\u202e", ""),
        ("https://example.com\\@evil.example", ""),
        ("", ""),
    ],
)
def test_only_web_addresses_become_links(url: str, address: str) -> None:
    assert formatting.web_address(url) == address


@given(st.text(alphabet=st.sampled_from('*_~`> -1.\nab<&"https://\u202e\x00'), max_size=300) | st.text(max_size=300))
def test_any_text_becomes_valid_html_with_its_words(text: str) -> None:
    html = formatting.formatted(text)
    root = document.parse(html)
    assert {element.tag for element in root.walk() if element.tag} <= {
        "p", "br", "b", "i", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "bdi",
    }  # fmt: skip
    assert document.faults(html, is_whole=False) == []


@pytest.mark.parametrize("piece", ["*a ", "_a ", "~a ", "`a", "```a", "> ", "- x\n", "*_~", "https://a", "*a*_b_"])
def test_long_text_takes_time_in_proportion(piece: str) -> None:
    started = time.process_time()
    formatting.formatted(piece * 20_000)
    assert time.process_time() - started < 5.0


def test_a_long_address_with_a_backslash_takes_linear_time() -> None:
    started = time.process_time()
    assert "<a " not in formatting.formatted("http://" + "a" * 32_000 + "\\")
    assert formatting.web_address("https://" + "a" * 32_000 + "\\") == ""
    assert time.process_time() - started < 2.0
