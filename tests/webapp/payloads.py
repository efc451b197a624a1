"""200 texts that have broken other programs: injections, control characters, marks of direction, paths, numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence

_SQL = [
    *("'", '"', "`", "' OR '1'='1", "' OR 1=1 -- ", '" OR ""="', "'; DROP TABLE users; --", "1; SELECT SLEEP(5)"),
    *("' UNION SELECT NULL,NULL,NULL -- ", "admin'/*", "*/ OR 1=1", "%' AND 1=0 --", "x' AND SLEEP(5) AND 'a'='a"),
    *(
        "'||(SELECT password_hash FROM users)||'",
        "1 OR 1=1",
        "\\'; --",
        "0x27",
        "CHAR(39)",
        "_%",
        "%%%",
        "';ATTACH 'x'--",
    ),
]
_SHELL = [
    *(
        "; ls",
        "| id",
        "`id`",
        "$(id)",
        "&& sleep 5",
        "|| sleep 5",
        "\nid\n",
        "$HOME",
        "${IFS}",
        "~root",
        "-rf",
        "--help",
    ),
    *("!!", ">/etc/passwd", "<(id)", "*", "?", "[a-z]*", "{a,b}", "\\"),
]
_PATHS = [
    *("../../../../etc/passwd", "..\\..\\windows", "/etc/passwd", "/dev/zero", "/proc/self/environ", "./.", "..", "."),
    *("%2e%2e%2f", "..%00/", "file:///etc/passwd", "a/../../b", "//host/share", "C:\\x", "CON", "a" * 300 + "/x"),
    *("\0/etc/passwd", "x\0.png", "....//", "~/.ssh/id_rsa"),
]
_MARKUP = [
    *(
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "javascript:alert(1)",
        "&lt;",
        "&#0;",
        "<!--",
        "]]>",
    ),
    *("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>&b;", "<?php echo 1;", "{{7*7}}", "${7*7}", "#{7*7}"),
    *("<%= 7*7 %>", "{% debug %}", "{{config}}", "{0.__class__}", "{self}", "%(x)s", "%s%s%s%n", "%x"),
]
_LINES = [
    *("a\r\nSet-Cookie: a=b", "a\r\n\r\n<html>", "\r", "\n", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"),
    *("\nlevel=error msg=forged", '"}\n{"level":"error"', "\x1b[2J", "\x1b]0;x\x07", "\x9b1A", "\b\b\b", "\x7f", "\t"),
    *("\x01", "\x1f"),
]
_UNICODE = [
    *("\0", "a\0b", "\ufeff", "\ufffe", "\uffff", "\U0010ffff", "\u202e gnp.exe", "\u2066x\u2069", "\u200f", "\u061c"),
    *("\u200b", "\u200d", "\u00ad", "e" + "\u0301" * 200, "\u212a", "\u0130", "\u00df", "\ufb03", "\u1e9e", "\u01c4"),
    *(
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea",
        "ａｄｍｉｎ",
        "аdmin",
        "\u3000",
        "\u00a0",
        "\u2003",
    ),
    *("\u180e", "\ue000", "𝟙𝟝𝟝𝟝"),
]
_NUMBERS = [
    *("0", "-1", "1e309", "NaN", "Infinity", "-0", "1.0", "0x10", "1_000", "٠١٢٣", "१२३", "１２３", "²", "½", "①"),
    *(
        "9" * 40,
        "2147483648",
        "9223372036854775808",
        "-9223372036854775809",
        "00015550110001",
        "+",
        "+1",
        "1 555",
        "1-555",
    ),
    *("00", "true", "null", "undefined", "[]", "{}"),
]
_DATES = [
    *(
        "1970-01-01",
        "9999-12-31T23:59:60Z",
        "P1D",
        "P99999999999D",
        "PT0S",
        "-P1D",
        "0000-00-00",
        "31.02.2024",
        "now()",
    ),
    "1e3",
]
_STRUCTURE = [
    *(
        json.dumps({"$gt": ""}),
        json.dumps({"__proto__": {}}),
        '{"a":' * 50,
        "[" * 50,
        "__class__",
        "constructor",
        "None",
    ),
    *(
        "__import__('os')",
        "!!python/object:x",
        'O:1:"a":0:{}',
        "rO0ABXNy",
        "gASVAAAA",
        "*)(uid=*",
        "\\u0000",
        "\\ud800",
    ),
]
_LINKS = [
    *(
        "http://169.254.169.254/",
        "http://localhost:1/",
        "http://[::1]/",
        "https://a@b@c/",
        "http://127.1/",
        "gopher://x/",
    ),
    *(
        "http://0/",
        "data:text/html,x",
        "//evil.example",
        "https://\u2024",
        "http://a\r\nb/",
        "x" * 1000,
        "x" * 30_000,
        " ",
    ),
]

PAYLOADS = [
    *(_SQL + _SHELL + _PATHS + _MARKUP),
    *(_LINES + _UNICODE + _NUMBERS + _DATES + _STRUCTURE + _LINKS),
]
# Number of fields after which each text has been in one of them, without `--long`.
SHARES = 16


def share(number: int, is_long: bool) -> Sequence[str]:
    """Return the texts for the field with this number: all of them, or a sixteenth that differs from field to field."""
    return PAYLOADS if is_long else PAYLOADS[number % SHARES :: SHARES]
