"""Accepted media types, and the check that a file matches its type."""

from __future__ import annotations

import contextlib
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from tests import media_samples
from tests.media_samples import SAMPLES
from tidings.media import kinds
from tidings.media.errors import UnusableType

CHECKED = [text for text in SAMPLES if text not in ("text/plain; charset=utf-8", "application/octet-stream")]


@pytest.mark.parametrize(
    ("given", "text", "kind"),
    [
        ("image/jpeg", "image/jpeg", "image"),
        (" IMAGE/PNG ; charset=binary", "image/png", "image"),
        ("image/webp", "image/webp", "sticker"),
        ("audio/ogg; codecs=opus", "audio/ogg; codecs=opus", "audio"),
        ('audio/ogg;CODECS="Opus";', "audio/ogg; codecs=opus", "audio"),
        ("audio/aac", "audio/aac", "audio"),
        ("video/3gpp", "video/3gpp", "video"),
        ("application/pdf", "application/pdf", "document"),
        ("Text/Plain;charset=UTF-8", "text/plain; charset=UTF-8", "document"),
        ("image/gif", "image/gif", "document"),
        (
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "document",
        ),
        ("x-custom/thing", "x-custom/thing", "document"),
        ("image/png;", "image/png", "image"),
        ('text/plain; title="a; b"; charset="utf-8"', 'text/plain; title="a; b"; charset=utf-8', "document"),
        ('text/plain; title=""', 'text/plain; title=""', "document"),
    ],
)
def test_a_media_type_is_accepted_in_any_spelling(given: str, text: str, kind: str) -> None:
    found = kinds.parse(given)
    assert (found.text, found.kind, found.limit) == (text, kind, kinds.LIMITS[kind])
    assert kinds.parse(found.text) == found


@pytest.mark.parametrize(
    "given",
    [
        "",
        "image",
        "image/",
        "/png",
        "image/png/x",
        "image/png image/jpeg",
        "image/png, image/jpeg",
        "ïmage/png",
        "audio/ogg",
        "audio/ogg; codecs=vorbis",
        "audio/ogg; codec=opus",
        "multipart/form-data; boundary=x",
        "text/plain; charset",
        'text/plain; charset="a',
        "text/plain; x=\x00",
        "text/" + "x" * 300,
        # Within the maximum length until a space is inserted before each parameter.
        "text/plain" + "".join(f";x{n}=1" for n in range(40)),
    ],
)
def test_an_invalid_or_unsupported_type_is_refused(given: str) -> None:
    with pytest.raises(UnusableType):
        kinds.parse(given)


# Types with parameters, quoted and unquoted.
TYPES = re.compile(r'[a-z]/[a-z](; ?[a-z]{1,2}=("[ !#-[\]-~]*"|[a-z]))*', re.ASCII)


@hypothesis.given(st.text(max_size=300) | st.from_regex(TYPES, fullmatch=True))
def test_parsing_any_text_yields_a_type_or_a_refusal(given: str) -> None:
    try:
        found = kinds.parse(given)
    except UnusableType:
        return
    assert found.text.isascii()
    assert len(found.text) <= kinds.MAX_LENGTH
    assert kinds.parse(found.text) == found


@pytest.mark.parametrize("text", SAMPLES)
def test_a_file_of_each_type_is_recognised(text: str) -> None:
    kinds.parse(text).check(SAMPLES[text])


@pytest.mark.parametrize("text", CHECKED)
def test_a_file_of_another_type_is_refused(text: str) -> None:
    of = kinds.parse(text)
    related = {
        "audio/mp4": {"video/3gpp", "video/mp4"},  # whether it has a video track is stated further back in the file
        "video/mp4": {"video/3gpp"},
    }
    for other, file in SAMPLES.items():
        if other != text and other not in related.get(text, set()):
            with pytest.raises(UnusableType):
                of.check(file)
    for file in (media_samples.HTML, b"x", media_samples.HEIC, media_samples.QUICKTIME, media_samples.VORBIS):
        with pytest.raises(UnusableType):
            of.check(file)


@pytest.mark.parametrize("text", CHECKED)
@hypothesis.given(head=st.binary(max_size=64))
def test_checking_any_bytes_yields_acceptance_or_a_refusal(text: str, head: bytes) -> None:
    of = kinds.parse(text)
    for file in (head, SAMPLES[text][: len(head)] + head):
        with contextlib.suppress(UnusableType):
            of.check(file)


@pytest.mark.parametrize("make", [media_samples.webp, media_samples.webp_lossless, media_samples.webp_lossy])
def test_a_sticker_must_be_512_pixels_square_and_not_animated(make: object) -> None:
    of = kinds.parse("image/webp")
    assert callable(make)
    of.check(make(512, 512))
    for size in ((511, 512), (512, 513), (1, 1)):
        with pytest.raises(UnusableType, match=f"the sticker is {size[0]} x {size[1]} pixels"):
            of.check(make(*size))
    with pytest.raises(UnusableType, match="animated"):
        of.check(media_samples.webp(512, 512, animated=True))
    with pytest.raises(UnusableType, match="no readable picture"):
        of.check(b"RIFF\0\0\0\0WEBPALPH" + b"\0" * 20)


def test_a_document_may_be_of_any_type_and_other_kinds_only_of_their_own() -> None:
    for text in SAMPLES:
        assert [kind for kind in kinds.KINDS if kinds.may_be_sent_as(text, kind)] == [
            kind for kind in kinds.KINDS if kind in (kinds.parse(text).kind, "document")
        ]
    assert kinds.types_of("sticker") == ("image/webp",)
    assert kinds.types_of("document") == ()
