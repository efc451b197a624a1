"""`tidings move check`: a result for each part of an On-Premises configuration, and no secrets in the output."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from cli import guard
from cli.moving import check, compose_file, findings
from cli.moving.compose_file import UnreadableCompose
from tests.authority import Authority
from tests.cli.support import assert_one_line, run

NOW = datetime.datetime.now(datetime.UTC)
SETTINGS = {
    "settings": {
        "application": {
            "callback_backoff_delay_ms": "3000",
            "max_callback_backoff_delay_ms": 600000,
            "webhooks": {
                "url": "https://user:hidden1@hooks.example.com/hidden2?key=hidden3",
                "max_concurrent_requests": 7,
                "message": {"sent": True, "delivered": True, "read": True},
            },
            "media": {"auto_download": ["image", "document"]},
            "db_garbagecollector_enable": True,
            "pass_through": True,
            "on_call_pager": "hidden4",
            "tcp_listen_address": "hidden5",
            "wa_id": "15551234567",
        }
    },
    "meta": {"version": "2.53.4", "api_status": "stable"},
}
ENV = """\
# Database of the old installation
WA_DB_ENGINE=MYSQL
WA_DB_HOSTNAME=db
WA_DB_PASSWORD=hidden6
WA_DB_CONNECTION_IDLE_TIMEOUT=180
"""
COMPOSE = """\
version: '3'

volumes:
  whatsappMedia:
    driver: local

services:
  db:
    image: mysql:5.7.22
    environment:
      MYSQL_ROOT_PASSWORD: hidden7
    expose:
        - "33060"
  waweb:
    image: docker.whatsapp.biz/web:v${WA_API_VERSION:?Run with WA_API_VERSION (ex. WA_API_VERSION=2.23.4)}
    command: ["/opt/whatsapp/bin/wait_on_mysql.sh", "/opt/whatsapp/bin/launch_within_docker.sh"]
    volumes:
     - whatsappMedia:/usr/local/wamedia
    env_file:
      - db.env
    environment:
      WA_APP_MULTICONNECT: 1
      WEBAPP_HOSTNAME: "waweb"
      # The version of the templates
      WA_RUNNING_ENV_VERSION: v2.2.3
  master1:
    image: docker.whatsapp.biz/coreapp:v2.57.2
    env_file: db.env
    environment:
      - WA_MASTER_NODE=1
  wacore1:
    image: docker.whatsapp.biz/coreapp:v2.57.2
    environment:
    - COREAPP_HOSTNAME=wacore1
  exporter:
    image: prom/mysqld-exporter:v0.10.0
"""


def lines_of(*paths: Path) -> list[str]:
    return [str(part) for part in check.check(paths, NOW)]


def of_json(tmp_path: Path, document: object) -> list[str]:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(document))
    return lines_of(path)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Directory with everything that an old installation has."""
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "db.env").write_text(ENV)
    (tmp_path / "docker-compose.yml").write_text(COMPOSE)
    users = [{"ROLES": "ROLE_ADMIN", "username": "admin"}, {"ROLES": "ROLE_USER", "username": "shop"}]
    (tmp_path / "users.json").write_text(json.dumps({"users": users}))
    (tmp_path / "ca.pem").write_bytes(Authority().pem)
    (tmp_path / "notes.txt").write_text("hidden8")
    return tmp_path


def test_each_part_of_a_directory_has_a_line_and_secrets_have_none(old: Path) -> None:
    done = run("move", "check", "--from", str(old))
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    for line in (
        "kept     callback_backoff_delay_ms: 3000 is the default",
        "set      max_callback_backoff_delay_ms: PATCH /v1/settings/application "
        '{"max_callback_backoff_delay_ms":600000}',
        'set      webhooks.url: PATCH /v1/settings/application {"webhooks": {"url": "https://hooks.example.com/…"}}',
        "refused  webhooks.max_concurrent_requests: should be 6, 12, 18 or 24",
        'set      webhooks.message.sent: PATCH /v1/settings/application {"webhooks":{"message":{"sent":true}}}',
        "kept     webhooks.message.read: true is the default",
        "kept     db_garbagecollector_enable: true is the default",
        "unused   tcp_listen_address: it is ignored here",
        "set      wa_id: TIDINGS_BUSINESS_NUMBER=15551234567; through the Cloud API: `tidings number upstream`",
        "kept     WA_DB_ENGINE: MYSQL, on MySQL 8 or MariaDB",
        "unused   WA_DB_CONNECTION_IDLE_TIMEOUT: connections are checked before use",
        "kept     WEBAPP_HOSTNAME: same name",
        "kept     COREAPP_HOSTNAME: same name, unique for each Coreapp",
        "kept     container db: with empty schemas, from MySQL 8 or MariaDB",
        "set      container waweb: `tidings webapp` (docs/deploy/compose.md)",
        "unused   container master1: there are no masters: every Coreapp may own shards",
        "unused   container exporter: it is no part of Tidings",
        "kept     user admin: passwords cannot be moved: the first login sets a new one",
        "set      user shop: POST /v1/users with a new password; passwords cannot be moved",
        "set      webhook authorities in ca.pem: POST /v1/certificates/webhooks/ca",
        "unused   file notes.txt: it is not read: it is no .json, .pem, .crt, .yml or .env file",
    ):
        assert line in lines
    # The env file is named three times: by itself, and by two services.
    assert sum("WA_DB_PASSWORD" in line for line in lines) == 1
    assert "hidden" not in done.stdout + done.stderr
    assert lines[-1] == findings.summary(check.check([old], NOW))
    assert lines[-1].endswith(", 1 refused")


def test_a_configuration_without_refusals_ends_with_0(tmp_path: Path) -> None:
    path = tmp_path / "db.env"
    path.write_text(ENV)
    done = run("move", "check", "--from", str(path))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "3 kept, 0 to set, 1 unused, 0 refused")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "WA_DB_ENGINE=PGSQL",
            "refused  WA_DB_ENGINE: PostgreSQL is not supported: use MYSQL, or SQLITE for one machine",
        ),
        ("WA_DB_ENGINE=hidden", "refused  WA_DB_ENGINE: it is neither MYSQL nor SQLITE"),
        ("WA_API_KEY=hidden", "refused  WA_API_KEY: it does not have 12 to 128 characters"),
        ("WA_WEB_JWT_CRYPTO_KEY=hidden", "refused  WA_WEB_JWT_CRYPTO_KEY: it is shorter than 16 characters"),
        ("WA_DB_ENGINE=${ENGINE}", "kept     WA_DB_ENGINE: same name, MYSQL or SQLITE"),
        ("SOMETHING=hidden", "unused   SOMETHING: Tidings does not read it"),
        ("export TIDINGS_SHARDS=2", "kept     TIDINGS_SHARDS: it is a variable of Tidings"),
    ],
)
def test_variables_are_judged_by_name_and_some_by_value(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / ".env"
    path.write_text(text)
    assert lines_of(path) == [line]


def test_templates_of_both_list_formats_are_judged_as_an_import_would(tmp_path: Path) -> None:
    body = [{"type": "BODY", "text": "Hello {{1}}", "example": {"body_text": [["Ada"]]}}]
    good = {"name": "order", "language": "en_US", "category": "UTILITY", "status": "approved", "components": body}
    wrong = {**good, "name": "Order"}
    found = of_json(tmp_path, {"waba_templates": [good, {**good, "language": "de", "status": "submitted"}, wrong]})
    assert found[:2] == [
        "set      template order in en_US: tidings template import saved.json",
        "set      template order in de: tidings template import saved.json",
    ]
    assert found[2].startswith("refused  template Order in en_US: name: should be 1 to 512 lower-case letters")
    assert of_json(tmp_path, {"data": [good]}) == found[:1]
    assert of_json(tmp_path, [good]) == found[:1]
    assert of_json(tmp_path, {"data": []}) == ["unused   file saved.json: it lists no templates"]


def test_a_webhook_that_would_be_refused_is_named_without_its_path(tmp_path: Path) -> None:
    def line(url: object) -> str:
        [found] = of_json(tmp_path, {"settings": {"application": {"webhooks": {"url": url}}}})
        return found

    assert line("https://10.1.2.3:8443/hidden").endswith(
        '"https://10.1.2.3:8443/…"}}; it is a private address: TIDINGS_OUTGOING_ALLOW_WEBHOOKS must list it'
    )
    assert line("http://169.254.169.254/hidden") == (
        "refused  webhooks.url: http://169.254.169.254 is a metadata address"
    )
    assert (
        line("ftp://hidden") == "refused  webhooks.url: should be an absolute URL that begins with http:// or https://"
    )
    assert line("") == "kept     webhooks.url: none is set"
    assert line(None) == "unused   webhooks.url: it is not set"


def test_other_responses_of_the_old_api_are_reported_as_taken_over_or_not(tmp_path: Path) -> None:
    provider = {"name": "files", "type": "www", "config": {"bearer": "hidden"}}
    settings = {
        "application": {"media": {"providers": [provider, {**provider, "name": "a/b"}, 5]}},
        "business": {"profile": {"address": "x" * 257}},
        "profile": {"about": {"text": "Open"}, "photo": {"link": "hidden"}},
        "data": "hidden",
    }
    found = of_json(
        tmp_path,
        {
            "settings": settings,
            "users": [{"token": "hidden"}, {"username": "x"}],
            "account": {"shards": 3},
            "stickerpacks": [{"id": "1"}],
            "groups": [{"id": "1"}],
            "health": {"gateway_status": "connected"},
        },
    )
    assert found == [
        "set      media provider files: POST /v1/settings/application/media/providers, in a list",
        "refused  media provider a/b: name: should have printable characters only, no / and no blank at its ends",
        "refused  media provider 2: body: should be a JSON object",
        "refused  business profile: address: should have at most 256 characters",
        "set      about text: PATCH /v1/settings/profile/about",
        "set      photo: POST /v1/settings/profile/photo with the file",
        "unused   backup: it has WhatsApp's keys: POST /{phone-number-id}/register of the vendor's Cloud API takes it",
        "unused   token: tokens of the old installation are invalid here: log in again, and delete the file",
        "refused  user x: username: should have at least 4 characters",
        "refused  shards: should be 1, 2, 4, 8, 16 or 32",
        "set      1 sticker pack: POST /v1/stickerpacks, then the stickers of each",
        "refused  1 group: members cannot be moved: create them again with POST /v1/groups",
        "unused   health in saved.json: it is a state and no configuration",
    ]
    assert of_json(tmp_path, {"account": {"shards": 8}}) == [
        "set      shards: TIDINGS_SHARDS=8 before the first start, or POST /v1/account/shards"
    ]


def test_certificates_are_checked_as_an_upload_would_be(tmp_path: Path) -> None:
    authority = Authority()
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.pem)
    later = NOW + datetime.timedelta(days=40_000)
    [expired] = check.check([path], later)
    assert str(expired).startswith("refused  webhook authorities in ca.pem: ")
    assert str(expired).endswith(" has expired")
    path.write_text("-----BEGIN CERTIFICATE-----\nhidden\n-----END CERTIFICATE-----\n")
    assert "hidden" not in lines_of(path)[0]
    path.write_text("-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----\n")
    [line] = lines_of(path)
    assert line.startswith("refused  API certificate in ca.pem: ")
    assert "hidden" not in line


def test_a_resource_that_the_old_installation_lacked_is_no_error(tmp_path: Path) -> None:
    missing = {"errors": [{"code": 1006, "title": "Resource not found"}]}
    assert of_json(tmp_path, missing) == ["unused   file saved.json: the old installation had none of these"]
    path = tmp_path / "ca.pem"
    path.write_text("")
    assert lines_of(path) == ["unused   file ca.pem: it is empty: the old installation had none of these"]


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("a.json", '{"settings": hidden', r".*a\.json is not JSON: JSON is malformed"),
        ("a.json", '{"x": 1}', r".*a\.json is no response of the old API"),
        ("a.json", "5", r".*a\.json is no response of the old API"),
        ("a.json", "[" * 100_000, r".*a\.json is not JSON"),
        (
            "a.json",
            '{"errors": [{"code": 1005, "title": "Access denied", "details": "hidden"}]}',
            r".*a\.json has an error of the old API \(1005 Access denied\): repeat the call with a valid token$",
        ),
        ("a.yml", "services:\n\tweb:\n", r".*a\.yml cannot be read: line 2: it is indented with tabs$"),
        ("a.yml", "version: '3'\n", r".*a\.yml cannot be read: it has no services, so it is no Compose file$"),
        ("a.yml", "services:\n  web:\n    env_file: none.env\n", r".*none\.env cannot be read: No such file"),
        ("a.env", "hidden\n", r".*a\.env, line 1: not NAME=VALUE$"),
        ("a.txt", "hidden\n", r".*a\.txt is neither JSON nor PEM nor a Compose or env file$"),
    ],
)
def test_unusable_files_are_explained_in_one_line(tmp_path: Path, name: str, text: str, pattern: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(guard.CommandFailure, match=pattern) as failure:
        check.check([path], NOW)
    assert "hidden" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_missing_empty_and_binary_input_ends_with_one_line(tmp_path: Path) -> None:
    assert_one_line(
        run("move", "check", "--from", str(tmp_path / "none")), 1, r"tidings move: .*/none cannot be read: No"
    )
    assert_one_line(
        run("move", "check", "--from", str(tmp_path)), 1, r".* has no \.json, \.pem, \.crt, \.yml or \.env file$"
    )
    assert run("move", "check").returncode == 2
    path = tmp_path / "a.env"
    path.write_bytes(b"\xff\xfe=1")
    with pytest.raises(guard.CommandFailure, match="is not UTF-8"):
        check.check([path], NOW)
    path.write_text("# nothing\n")
    with pytest.raises(guard.CommandFailure, match="there is no configuration of an old installation"):
        check.check([path], NOW)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services:\n  a:\n    environment: {A: 1}\n", "line 3: write each entry of environment on a separate line"),
        ("services:\n  a:\n      image: b\n    x: y\n", "line 4: its indentation fits no line above it"),
        ("services:\n  a:\n    environment:\n      - A=1\n      B: 2\n", "line 5: it is no entry of a list"),
        ("services:\n  a:\n    environment:\n      - A: secret\n", "line 4: it is not of the form `- NAME=value`"),
        ("services:\n  just words\n", "line 2: it is not of the form `name: value`"),
        ("services:\n", "it has no services"),
    ],
)
def test_a_compose_file_that_cannot_be_read_is_refused_with_the_line(text: str, words: str) -> None:
    with pytest.raises(UnreadableCompose) as refusal:
        compose_file.read(text)
    assert str(refusal.value) == words


def test_both_forms_of_variables_are_read_with_quotes_and_comments() -> None:
    found = compose_file.read(
        "services:\n  a:\n    image: \"b:1\" # comment\n    environment:\n    - 'A=1=2'\n    - B\n"
        '  c:\n    environment:\n      D: "e # f"\n      G:\n    env_file:\n      - path: x.env\n      - y.env\n'
    )
    assert found["a"].image == "b:1"
    assert found["a"].variables == {"A": "1=2", "B": ""}
    assert found["c"].variables == {"D": "e # f", "G": ""}
    assert found["c"].env_files == ("x.env", "y.env")
