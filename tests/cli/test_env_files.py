"""`tidings --env-file` reads what a systemd unit reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import guard, main
from tests.cli.support import assert_one_line, run_from_scratch

TEXT = """\
# a comment
; another

TIDINGS_SHARDS=2
 TIDINGS_LOG_STYLE = json
WA_DB_PASSWORD="with = and # inside"
TIDINGS_API_TLS_NAMES='a.example,b.example'
TIDINGS_OUTGOING_ALLOW=10.0.0.0/8,\\
192.168.0.0/16
EMPTY=
"""


def test_an_env_file_is_parsed_like_systemd_parses_it(tmp_path: Path) -> None:
    path = tmp_path / "tidings.env"
    path.write_text(TEXT.replace(" TIDINGS_LOG_STYLE = json", "TIDINGS_LOG_STYLE=json "))
    assert main.read(path) == {
        "TIDINGS_SHARDS": "2",
        "TIDINGS_LOG_STYLE": "json",
        "WA_DB_PASSWORD": "with = and # inside",
        "TIDINGS_API_TLS_NAMES": "a.example,b.example",
        "TIDINGS_OUTGOING_ALLOW": "10.0.0.0/8,192.168.0.0/16",
        "EMPTY": "",
    }
    assert main.read(Path(f"-{tmp_path}/absent")) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [("A=1\nB", "line 2: not NAME=VALUE"), ("1A=x", "line 1: not NAME"), ("A='x", "A has no closing quotation mark")],
)
def test_a_malformed_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tidings.env"
    path.write_text(text)
    with pytest.raises(guard.CommandFailure, match=said):
        main.read(path)


def test_the_last_env_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "tidings.env", tmp_path / "webapp.env"
    first.write_text(f"TIDINGS_DATA_DIR={tmp_path / 'data'}\nTIDINGS_MESSAGES_RATE=fast\n")
    second.write_text("TIDINGS_MESSAGES_RATE=quick\n")
    done = run_from_scratch("--env-file", str(first), f"--env-file={second}", "doctor", "--quick", "--json", "webapp")
    texts = [finding["text"] for finding in json.loads(done.stdout)["findings"]]
    assert any("TIDINGS_MESSAGES_RATE='quick'" in text for text in texts), texts
    assert not any("fast" in text for text in texts)


def test_a_missing_env_file_is_reported_in_one_line() -> None:
    assert_one_line(
        run_from_scratch("--env-file", "/nonexistent/x.env", "version"),
        1,
        "tidings version: --env-file /nonexistent/x.env: No",
    )
