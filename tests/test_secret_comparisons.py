"""Secrets are compared by `hmac.compare_digest`: the duration of `==` depends on the first difference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_architecture import PRODUCT
from tests.test_import_direction import ROOT

# Names of secrets: last word of a variable, an attribute, a function or a key.
SECRET = re.compile(
    r"(?:^|_)(?:token|secret|password|passphrase|pin|mac|hmac|digest|signature|fingerprint|private|bearer|authorization"
    r"|(?:password|pin|code|token)_hash|(?:api|operator|link|registration|jwt|master|access|settings|handset)_key"
    r"|credential|nonce|proof|challenge|invite|(?:invite|chat|registration|one_time)[._]code)s?$",
    re.IGNORECASE,
)
# Comparisons by `==` of such names that reveal nothing, with the reason.
HARMLESS = {
    "network/settings.py: self.operator_key == self.api_key": "two settings of one process, at its start",
    "network/groups/rules.py: state.chat.code == code": "the new code is made by this process",
    "network/groups/chats.py: after.chat.code != before.chat.code": "whether a row is to be written",
    "network/cluster/presence.py: self.token_of(device_part) != claim.token": "a count of claims, no secret",
    "network/cluster/presence.py: self.token_of(device_part) == claim.token": "a count of claims, no secret",
    "network/cluster/node.py: self.presence.token_of(device_part) == token": "a count of claims, no secret",
    "coreapp/webhook_secrets.py: entry.secret != fresh": "the administrator's own old and new secret, rarely",
    "tidings/storage/migration_steps.py: self._digest.hex() != self._reached_digest": "of SQL statements in the source",
    "coreapp/peers/identities.py: known.identity.hash == digest": "of a public key",
    "webapp/console/pages/login.py: password != page.form.raw('repeated')": "two fields of one form",
    "webapp/console/streams.py: digest != shown": "of a page that the client has",
}


def words_of(node: ast.expr) -> str:
    """Return the name of an operand, for an attribute with its object before it; empty for a constant."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{words_of(value).rpartition('.')[2]}.{name}"
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            return f"{words_of(value)}.{name}"
        case ast.Subscript(value=value) | ast.Await(value=value):
            return words_of(value)
        case ast.Call(func=ast.Attribute(value=value, attr="encode" | "decode" | "hex" | "strip" | "lower" | "digest")):
            return words_of(value)
        case ast.Call(func=function):
            return words_of(function)
    return ""


def is_secret(node: ast.expr) -> bool:
    words = words_of(node)
    return bool(SECRET.search(words) or SECRET.search(words.rpartition(".")[2]))


def is_constant(node: ast.expr) -> bool:
    """Return whether the operand is a constant: a literal, `None`, or a name in capitals."""
    last = words_of(node).rpartition(".")[2]
    return isinstance(node, ast.Constant) or (bool(last) and last.isupper())


def comparisons(source: str) -> Iterator[str]:
    """Yield the comparisons of secrets by `==` or `!=` in a module, without those that build SQL (`table.c.…`)."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare) or not any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            continue
        operands = [node.left, *node.comparators]
        text = ast.unparse(node)
        if any(map(is_constant, operands)) or re.search(r"\b(?:\w+\.)?c\.\w+", text):
            continue
        if any(map(is_secret, operands)):
            yield text


@pytest.mark.parametrize(
    "source",
    [
        "token == given",
        "row.password_hash != found",
        "headers['authorization'] == expected",
        "self._api_key == key.encode()",
        "make_signature(body) == given",
        "hmac.digest(key, body, 'sha256').hex() == signature",
        "chat.code != code",
        "given.strip() == await read_token()",
    ],
)
def test_a_comparison_of_a_secret_is_found(source: str) -> None:
    assert list(comparisons(f"async def check():\n    return {source}\n")) == [source]


@pytest.mark.parametrize(
    "source",
    [
        "token == ''",
        "kind == SECRET",
        "table.c.token == token",
        "a == b",
        "hmac.compare_digest(token, given)",
        "pin is x",
    ],
)
def test_other_comparisons_are_not_reported(source: str) -> None:
    assert not list(comparisons(f"async def check():\n    return {source}\n"))


def test_no_secret_is_compared_by_equality() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for top in PRODUCT
        for path in sorted((ROOT / top).rglob("*.py"))
        for text in comparisons(path.read_text())
    }
    assert found - HARMLESS.keys() == set(), "compare these by hmac.compare_digest, or say why they are harmless"
    assert HARMLESS.keys() - found == set(), "these exceptions are of no use any more"
