"""Signature verifiers of docs/webhook-signatures.md, and those that it links to, work in each language."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coreapp import signature

PAGE = Path(__file__).parents[1] / "docs" / "webhook-signatures.md"
NOW = 1_800_000_000
ONE, TWO = ("whsec_" + base64.b64encode(text).decode() for text in (b"one" * 8, b"two" * 8))
BODY = '{"text": "Grüße"}'.encode()

PYTHON = """
import json, sys
cases = json.load(sys.stdin)
print(json.dumps([is_genuine(c["secret"], c["headers"], bytes.fromhex(c["body"]), c["now"]) for c in cases]))
"""
JAVASCRIPT = """
const { isGenuine } = require("./is_genuine.cjs");
const cases = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map((c) => isGenuine(c.secret, c.headers, Buffer.from(c.body, "hex"), c.now))));
"""
GO = """package main

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"time"
)

type sample struct {
	Secret, Body string
	Headers      map[string]string
	Now          int64
}

func main() {
	var cases []sample
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	results := []bool{}
	for _, c := range cases {
		headers := http.Header{}
		for name, value := range c.Headers {
			headers.Set(name, value)
		}
		body, _ := hex.DecodeString(c.Body)
		results = append(results, IsGenuine(c.Secret, headers, body, time.Unix(c.Now, 0)))
	}
	json.NewEncoder(os.Stdout).Encode(results)
}

"""


def code_of_page() -> str:
    """Return the Python function that the page shows."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def code_of_file(name: str) -> str:
    """Return a file that the page links to."""
    path = f"examples/signatures/{name}"
    assert f"[`{name}`]({path})" in PAGE.read_text(encoding="utf-8")
    return (PAGE.parent / path).read_text(encoding="utf-8")


def case(secret: str = ONE, *, now: int = NOW, body: bytes = BODY, **changed: str) -> dict[str, Any]:
    headers = signature.headers([signature.secret_bytes(ONE), signature.secret_bytes(TWO)], "evt_1", NOW, BODY)
    headers |= {f"webhook-{name}": value for name, value in changed.items()}
    return {"secret": secret, "headers": headers, "body": body.hex(), "now": now}


CASES = [
    (case(), True),
    (case(TWO), True),
    (case(now=NOW + 300), True),
    (case("whsec_" + base64.b64encode(b"six" * 8).decode()), False),
    (case(body=BODY + b" "), False),
    (case(id="evt_2"), False),
    (case(timestamp=str(NOW + 1)), False),
    (case(timestamp="soon"), False),
    (case(timestamp=""), False),
    (case(signature=""), False),
    (case(signature="v1,AAAA v1,ü"), False),
    (case(now=NOW + 301), False),
    (case(now=NOW - 301), False),
]


def python(folder: Path) -> list[str]:
    (folder / "verify.py").write_text(code_of_page() + PYTHON)
    return [sys.executable, str(folder / "verify.py")]


def javascript(folder: Path) -> list[str]:
    (folder / "is_genuine.cjs").write_text(code_of_file("is_genuine.cjs"))
    (folder / "verify.cjs").write_text(JAVASCRIPT)
    return ["node", str(folder / "verify.cjs")]


def go(folder: Path) -> list[str]:
    (folder / "verify.go").write_text(GO)
    own = code_of_file("is_genuine.go").replace("package signatures", "package main", 1)
    (folder / "is_genuine.go").write_text(own)
    return ["go", "run", str(folder / "verify.go"), str(folder / "is_genuine.go")]


LANGUAGES = {"python": (python, sys.executable), "node": (javascript, "node"), "go": (go, "go")}


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(
            prepare,
            id=name,
            marks=pytest.mark.skipif(shutil.which(needs) is None, reason=f"{needs} is not installed here"),
        )
        for name, (prepare, needs) in LANGUAGES.items()
    ],
)
def test_a_verifier_accepts_signatures_of_either_secret_and_nothing_else(
    prepare: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    sent = json.dumps([given for given, _ in CASES])
    done = subprocess.run(prepare(tmp_path), input=sent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [expected for _, expected in CASES]
