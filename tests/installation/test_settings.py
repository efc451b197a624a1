"""Environment variables: all are read, all errors are reported at once, and secrets are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pydantic
import pytest
from sqlalchemy.engine import make_url

from tidings.config import env
from tidings.config.env import SettingsError
from tidings.installation import settings
from tidings.installation.settings import DatabaseSettings
from tidings.net.tls import TlsFiles


class Process(env.Variables):
    a: Annotated[int, env.integer()] = env.variable("A", 1)
    b: env.Flag = env.variable("B", True)
    c: env.Address = env.variable("C", "[::1]:80")
    d: Annotated[tuple[float, float], env.text(env.parse_milliseconds)] = env.variable("D", (0.0, 0.0))
    e: Annotated[str, env.choice("SQLITE", "MYSQL")] = env.variable("E", "SQLITE")
    f: Annotated[int, env.integer(unit=env.MIB)] = env.variable("F", "3")
    g: Annotated[float, env.number()] = env.variable("G", 0.5)
    follows: Annotated[int, env.computed(lambda data: data["a"] + 1)] = env.COMPUTED


def test_all_invalid_variables_are_reported_at_once_without_follow_up_errors() -> None:
    wrong = {"A": "x", "B": "maybe", "C": "nowhere", "D": "150..80", "E": "ORACLE", "F": "-1", "G": "nan"}
    with pytest.raises(SettingsError) as caught:
        Process.read(wrong)
    assert str(caught.value) == (
        "A='x' is not a whole number from 0 to 2147483647; B='maybe' is not a yes or no (use 1 or 0); "
        "C='nowhere' is not host:port; D='150..80' is not milliseconds like 100 or 80..150; "
        "E='ORACLE' is not one of SQLITE, MYSQL; F='-1' is not a whole number from 0 to 2147483647; "
        "G='nan' is not a number from 0.0 to 1000000000.0"
    )


def test_valid_values_are_read_and_an_empty_one_counts_as_unset() -> None:
    found = Process.read({"A": "7", "B": "off", "C": "x:1", "D": "80..150", "E": "mysql", "F": "", "G": "2"})
    assert found == Process(a=7, b=False, c=("x", 1), d=(0.08, 0.15), e="MYSQL", f=3 * env.MIB, g=2.0, follows=8)
    assert Process.read({"D": "20"}).d == (0.02, 0.02)


def test_lower_case_variables_and_os_environ_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "9")
    assert Process.read({"a": "5"}).a == Process().a == 1


def test_settings_are_immutable_and_do_not_retain_the_environment() -> None:
    found = Process.read({"A": "2", "PASSWORD": "hidden"})
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        found.a = 3  # type: ignore[misc]
    assert "hidden" not in str(found.model_dump())


@pytest.mark.parametrize("port", ["²", "65536", "", "-1", "http"])
def test_an_invalid_port_is_refused(port: str) -> None:
    with pytest.raises(SettingsError, match="not host:port"):
        Process.read({"C": f"host:{port}"})


class Databases(settings.InstallationSettings):
    business: Annotated[DatabaseSettings, settings.database("business")] = env.COMPUTED
    network: Annotated[DatabaseSettings, settings.database("network")] = env.COMPUTED


def databases(directory: Path, **variables: str) -> Databases:
    return Databases.read({"TIDINGS_DATA_DIR": str(directory), **variables})


def test_the_default_database_is_sqlite_in_the_data_directory(tmp_path: Path) -> None:
    where = databases(tmp_path).business
    assert where.url == f"sqlite+aiosqlite:///{tmp_path}/business.db"
    assert where.engine == "sqlite"


def test_on_premises_variables_configure_mysql_and_hide_the_password(tmp_path: Path) -> None:
    where = databases(
        tmp_path,
        WA_DB_ENGINE="MYSQL",
        WA_DB_HOSTNAME="db",
        WA_DB_USERNAME="who",
        WA_DB_PASSWORD="p@ss/w:rd",
        WA_DB_PORT="3307",
        WA_DB_SSL_CA="ca.pem",
    ).network
    assert where.url == "mysql+aiomysql://who:p%40ss%2Fw%3Ard@db:3307/tidings_network"
    assert repr(where) == "DatabaseSettings(mysql+aiomysql://db:3307/tidings_network)"


@pytest.mark.parametrize("given", ["2001:db8::1", "[2001:db8::1]"])
def test_the_database_server_may_have_an_ipv6_address(tmp_path: Path, given: str) -> None:
    chosen = {"WA_DB_ENGINE": "MYSQL", "WA_DB_HOSTNAME": given, "WA_DB_SSL_CA": "/ca.pem"}
    where = databases(tmp_path, **chosen).business
    assert where.url == "mysql+aiomysql://root:@[2001:db8::1]:3306/tidings_business"
    assert make_url(where.url).host == "2001:db8::1"


@pytest.mark.parametrize(
    "given", ["http://db", "a b", "db..internal", "db:3307", "me@db", "db/x", "256.1.1.1", "/run/mysqld/mysqld.sock"]
)
def test_a_database_server_that_is_neither_a_name_nor_an_address_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(SettingsError, match=f"^WA_DB_HOSTNAME='{given}' is not a host name or an IP address"):
        databases(tmp_path, WA_DB_ENGINE="MYSQL", WA_DB_HOSTNAME=given, TIDINGS_ALLOW_PLAINTEXT="database")


def test_the_database_password_may_come_from_a_file(tmp_path: Path) -> None:
    kept = tmp_path / "password"
    kept.write_text("p@ss\n")
    chosen = {"WA_DB_ENGINE": "MYSQL", "WA_DB_PASSWORD_FILE": str(kept)}
    assert databases(tmp_path, **chosen).business.url == "mysql+aiomysql://root:p%40ss@127.0.0.1:3306/tidings_business"
    with pytest.raises(SettingsError, match="WA_DB_PASSWORD and WA_DB_PASSWORD_FILE are both set"):
        databases(tmp_path, **chosen, WA_DB_PASSWORD="other")
    kept.unlink()
    with pytest.raises(SettingsError, match="WA_DB_PASSWORD_FILE: No such file or directory"):
        databases(tmp_path, **chosen)


def test_a_remote_database_requires_tls_unless_plaintext_is_allowed(tmp_path: Path) -> None:
    elsewhere = {"WA_DB_ENGINE": "MYSQL", "WA_DB_HOSTNAME": "db.example"}
    with pytest.raises(SettingsError, match=r"WA_DB_HOSTNAME: db.example .*: set WA_DB_SSL_CA, or .*=database$"):
        databases(tmp_path, **elsewhere)
    assert databases(tmp_path, **elsewhere, TIDINGS_ALLOW_PLAINTEXT="database").business.tls is None
    assert databases(tmp_path, WA_DB_ENGINE="MYSQL").business.tls is None
    own = {"WA_DB_SSL_CERT": "/c.pem", "WA_DB_SSL_KEY": "/c.key"}
    found = databases(tmp_path, **elsewhere, **own, WA_DB_SSL_CA="/ca.pem")
    assert found.business.tls == found.network.tls == TlsFiles("/c.pem", "/c.key", "/ca.pem")
    for missing in ("WA_DB_SSL_CERT", "WA_DB_SSL_KEY"):
        with pytest.raises(SettingsError, match="must be set together"):
            databases(tmp_path, **elsewhere, **{**own, missing: ""}, WA_DB_SSL_CA="/ca.pem")


def test_a_database_url_may_name_tls_files_and_keeps_other_query_parameters(tmp_path: Path) -> None:
    address = "mysql+aiomysql://me:p%40ss@[2001:db8::1]:3307/x"
    variables = {"TIDINGS_NETWORK_DB_URL": f"{address}?ssl_ca=/srv/ca.pem&program_name=t", "WA_DB_SSL_CA": "/other.pem"}
    found = databases(tmp_path, **variables)
    assert (found.network.url, found.network.tls) == (f"{address}?program_name=t", TlsFiles("", "", "/srv/ca.pem"))
    # SQLite has no connection to encrypt.
    assert found.business.tls is None
    found = databases(tmp_path, **variables, TIDINGS_BUSINESS_DB_URL="mysql+aiomysql://me@db/x")
    assert found.business.tls == TlsFiles("", "", "/other.pem")
    with pytest.raises(SettingsError, match=r"TIDINGS_NETWORK_DB_URL: 2001:db8::1 is not on this machine"):
        databases(tmp_path, TIDINGS_NETWORK_DB_URL=address)


def test_on_premises_variables_are_ignored_when_urls_are_set(tmp_path: Path) -> None:
    ours = {f"TIDINGS_{family}_DB_URL": "mysql+aiomysql://me@127.0.0.1/x" for family in ("BUSINESS", "NETWORK")}
    found = databases(tmp_path, **ours, WA_DB_ENGINE="PGSQL", WA_DB_PORT="none")
    assert found.business.engine == "mysql"


def test_a_database_url_takes_precedence_and_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="postgresql://db/x") as caught:
        databases(tmp_path, TIDINGS_NETWORK_DB_URL="postgresql://me:secret@db/x", WA_DB_ENGINE="MYSQL")
    assert "secret" not in str(caught.value)


def test_database_setting_errors_are_reported_once_with_the_others(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        databases(tmp_path, WA_DB_PORT="none", TIDINGS_LOG_LEVEL="loud")
    assert str(caught.value) == (
        "TIDINGS_LOG_LEVEL='loud' is not one of debug, info, warning, error; "
        "WA_DB_PORT='none' is not a whole number from 1 to 65535"
    )


def test_an_impossible_data_directory_raises_settingserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"^data directory [^;]*$"):
        databases(tmp_path / "file" / "data")
