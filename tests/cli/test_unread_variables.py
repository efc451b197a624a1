"""A misspelt setting is reported at start and by the doctor, and refused where the operator has chosen so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cli.settings
import coreapp.settings
import handset.settings
import network.settings
import webapp.settings
from cli import known_variables, unread_variables
from cli.doctor.configuration import UnreadVariablesCheck
from cli.doctor.findings import Level
from tests.cli.support import assert_one_line, run_from_scratch
from tidings.config import env
from tidings.config.env import SettingsError

ROOT = Path(__file__).parents[2]
SETTINGS_MODULES = (cli.settings, coreapp.settings, handset.settings, network.settings, webapp.settings)
# Names that the code assembles from parts.
ASSEMBLED = {
    "TIDINGS_NETWORK_HTTP_KEY",
    "TIDINGS_NETWORK_TCP_KEY",
    "TIDINGS_OUTGOING_ALLOW_MEDIA",
    "TIDINGS_TLS_KEY",
    "WA_DB_SSL_KEY",
}
NAME = re.compile(r"\b(?:TIDINGS|WA)_[A-Z0-9_]*[A-Z0-9]\b")


def _classes(base: type[env.Variables]) -> list[type[env.Variables]]:
    return [each for child in base.__subclasses__() for each in (child, *_classes(child))]


def test_every_variable_of_a_settings_class_is_known() -> None:
    assert SETTINGS_MODULES
    fields = [field for each in _classes(env.Variables) for field in each.model_fields.values()]
    aliases = {field.validation_alias for field in fields if isinstance(field.validation_alias, str)}
    read = {name for name in aliases if name.startswith(("TIDINGS_", "WA_"))}
    assert len(read) > 100
    assert not unread_variables.find(dict.fromkeys(read, "1"))


def test_every_known_variable_occurs_in_the_code_or_a_compose_file() -> None:
    sources = [path for folder in ("tidings", "webapp", "coreapp", "network", "handset", "cli", "docker")
               for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yml", ".cfg")
               and path.name != "known_variables.py"]  # fmt: skip
    text = "\n".join(path.read_text() for path in sources)
    written = set(NAME.findall(text))
    known = known_variables.SETTINGS | known_variables.SECRETS | known_variables.COMPOSE
    assert known - written - ASSEMBLED == set()


def test_every_documented_variable_is_known() -> None:
    pages = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions")]
    named = {name for page in pages for name in re.findall(r"`((?:TIDINGS|WA)_[A-Z0-9_]*[A-Z0-9])`", page.read_text())}
    assert len(named) > 100
    assert not unread_variables.find(dict.fromkeys(named, "1"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("TIDINGS_CALLBACK_QUEUE_LIMITS", "TIDINGS_CALLBACK_QUEUE_LIMIT"),
        ("WA_DB_HOST_NAME", "WA_DB_HOSTNAME"),
        ("TIDINGS_MASTER_KEY_FLIE", "TIDINGS_MASTER_KEY_FILE"),
        ("WA_RUNNING_ENV", ""),
    ],
)
def test_a_misspelt_variable_is_found_with_the_nearest_known_name(name: str, nearest: str) -> None:
    (found,) = unread_variables.find({name: "1", "PATH": "/bin", "TIDINGS_SHARDS": "2"})
    assert (found.name, found.nearest) == (name, nearest)


async def test_the_doctor_warns_of_each_unread_variable() -> None:
    (found,) = await UnreadVariablesCheck({"TIDINGS_SHARD": "2"}).run()
    assert (found.level, found.text) == (
        Level.WARNING,
        "TIDINGS_SHARD is not a known variable (did you mean TIDINGS_SHARDS?)",
    )
    (fine,) = await UnreadVariablesCheck({"TIDINGS_SHARDS": "2"}).run()
    assert fine.level is Level.FINE


def test_a_strict_environment_with_an_unread_variable_stops_the_start(tmp_path: Path) -> None:
    variables = {"TIDINGS_SHARD": "2", "TIDINGS_STRICT_ENV": "1", "TIDINGS_DATA_DIR": str(tmp_path)}
    for command in ("up", "network"):
        assert_one_line(
            run_from_scratch(command, **variables),
            2,
            f"tidings {command}: TIDINGS_SHARD is not a known variable .*TIDINGS_SHARDS",
        )
    for variables in ({"TIDINGS_SHARD": "2"}, {}):
        with pytest.raises(SettingsError, match="TIDINGS_STRICT_ENV='maybe' is not a yes or no"):
            unread_variables.report({**variables, "TIDINGS_STRICT_ENV": "maybe"})


def test_an_unread_variable_logs_a_warning_at_start(caplog: pytest.LogCaptureFixture) -> None:
    unread_variables.report({"TIDINGS_SHARD": "2"})
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("WARNING", "environment.unread")
    assert (record.__dict__["variable"], record.__dict__["nearest"]) == ("TIDINGS_SHARD", "TIDINGS_SHARDS")
