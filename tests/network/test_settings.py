"""Settings of the network process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands.network import worker_environment
from network import settings
from network.errors import CannotListen
from tests.network.support import Network
from tidings.config.env import SettingsError, printable
from tidings.net.tls import TlsFiles


def read(tmp_path: Path, **variables: str) -> settings.Settings:
    return settings.Settings.read({"TIDINGS_DATA_DIR": str(tmp_path), **variables})


def test_defaults_serve_loopback_from_sqlite(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.http_address, found.tcp_address) == (("127.0.0.1", 9095), ("127.0.0.1", 9096))
    assert found.database.engine == "sqlite"
    assert found.message_ttl == 30 * 86400
    assert found.delay == (0.0, 0.0)
    assert found.blobs == settings.BlobSettings(directory=tmp_path / "blobs", quota=10 * 2**30, ttl=14 * 86400)
    assert not found.embedded


def test_every_setting_is_read_from_its_variable(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        TIDINGS_NETWORK_HTTP_ADDRESS="0.0.0.0:0",
        TIDINGS_ALLOW_PLAINTEXT="network",
        TIDINGS_NETWORK_TCP_ADDRESS="[::1]:7000",
        TIDINGS_NETWORK_DELAY_MS="80..150",
        TIDINGS_NETWORK_MESSAGE_TTL_S="60",
        TIDINGS_NETWORK_STORE_AFTER_MS="250",
        TIDINGS_NETWORK_WINDOW="10",
        TIDINGS_NETWORK_WRITE_BUFFER_MB="4",
        TIDINGS_REGISTRATION_KEY="key",
        TIDINGS_NETWORK_BLOB_DIR=str(tmp_path / "elsewhere"),
        TIDINGS_NETWORK_BLOB_QUOTA_MB="3",
        TIDINGS_NETWORK_BLOB_TTL_S="60",
        TIDINGS_NETWORK_TRANSFERS="7",
        TIDINGS_NETWORK_HTTP_CONNECTIONS="9",
        TIDINGS_EMBEDDED="1",
        TIDINGS_NETWORK_TCP_CERTIFICATE="chain.pem",
        TIDINGS_NETWORK_TCP_KEY="key.pem",
    )
    assert (found.http_address, found.tcp_address) == (("0.0.0.0", 0), ("::1", 7000))
    assert found.delay == (0.08, 0.15)
    assert (found.message_ttl, found.limits.store_after, found.limits.window) == (60, 0.25, 10)
    assert found.limits.write_buffer == 4 * 2**20
    assert found.secrets.registration_key == "key"
    assert found.blobs == settings.BlobSettings(directory=tmp_path / "elsewhere", quota=3 * 2**20, ttl=60)
    assert (found.limits.transfers, found.limits.http) == (7, 9)
    assert found.embedded
    assert found.tcp_certificate == TlsFiles("chain.pem", "key.pem")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDINGS_NETWORK_DELAY_MS", "150..80"),
        ("TIDINGS_NETWORK_DELAY_MS", "-5"),
        ("TIDINGS_NETWORK_DELAY_MS", "fast"),
        ("TIDINGS_NETWORK_HTTP_ADDRESS", "9095"),
        ("TIDINGS_NETWORK_MESSAGE_TTL_S", "0"),
        ("TIDINGS_NETWORK_BLOB_QUOTA_MB", "0"),
        ("TIDINGS_NETWORK_WRITE_BUFFER_MB", "3"),
        ("TIDINGS_NETWORK_TCP_CERTIFICATE", "chain.pem"),
        ("TIDINGS_NETWORK_NODE_ADDRESS", "0.0.0.0:9097"),
        ("TIDINGS_NETWORK_NODE_ADDRESS", "10.0.0.5"),
    ],
)
def test_an_invalid_value_is_reported_with_its_variable(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read(tmp_path, **{name: value})


@pytest.mark.parametrize(
    ("value", "address"), [("", ("", 0)), (":9097", ("", 9097)), ("[fd00::5]:9097", ("fd00::5", 9097))]
)
def test_the_node_address_is_an_address_or_a_port(tmp_path: Path, value: str, address: tuple[str, int]) -> None:
    assert read(tmp_path, TIDINGS_NETWORK_NODE_ADDRESS=value).cluster.node_address == address


@pytest.mark.parametrize("node", ["", "10.0.0.5:9097"])
def test_nodes_on_several_machines_require_tls_or_explicit_plaintext(tmp_path: Path, node: str) -> None:
    variables = {
        "TIDINGS_REDIS_URL": "redis://127.0.0.1:6379" if node else "rediss://redis.example:6379",
        "TIDINGS_NETWORK_NODE_ADDRESS": node,
    }
    with pytest.raises(SettingsError, match=r"TIDINGS_NETWORK_NODE_ADDRESS.*TIDINGS_ALLOW_PLAINTEXT=network"):
        read(tmp_path, **variables)
    assert read(tmp_path, **variables, TIDINGS_ALLOW_PLAINTEXT="network").cluster.url
    files = {f"TIDINGS_TLS_{word}": f"{word}.pem" for word in ("CERTIFICATE", "KEY", "CA")}
    assert read(tmp_path, **variables, **files).cluster.url


def test_workers_use_consecutive_node_ports(tmp_path: Path) -> None:
    shared = {"TIDINGS_NETWORK_WORKERS": "2", "TIDINGS_REDIS_URL": "redis://127.0.0.1:6379"}
    for value, second in (("[::1]:9097", ("::1", 9098)), (":9097", ("", 9098)), ("127.0.0.1:0", ("127.0.0.1", 0))):
        variables = {**shared, "TIDINGS_NETWORK_NODE_ADDRESS": value}
        environment = worker_environment(variables, read(tmp_path, **variables), 1)
        assert read(tmp_path, **environment).cluster.node_address == second


@pytest.mark.parametrize("variables", [{}, {"TIDINGS_NETWORK_WRITE_BUFFER_MB": "5"}])
def test_the_limits_in_flight_fit_into_the_write_buffer(tmp_path: Path, variables: dict[str, str]) -> None:
    limits = read(tmp_path, **variables).limits
    assert limits.window_bytes < limits.session_bytes <= limits.write_buffer // 2
    if not variables:
        assert limits == settings.Limits()


def test_the_operator_key_must_differ_from_the_monitoring_key(tmp_path: Path) -> None:
    same = "a key of twenty chars"
    with pytest.raises(SettingsError, match="TIDINGS_OPERATOR_KEY equals WA_API_KEY"):
        read(tmp_path, WA_API_KEY=same, TIDINGS_OPERATOR_KEY=same)
    with pytest.raises(SettingsError, match="TIDINGS_OPERATOR_KEY does not have 12 to 128 characters"):
        read(tmp_path, TIDINGS_OPERATOR_KEY="short")
    kept = tmp_path / "operator_key"
    kept.write_text("another key of theirs\n")
    found = read(tmp_path, WA_API_KEY=same, TIDINGS_OPERATOR_KEY_FILE=str(kept))
    assert (found.api_key, found.operator_key) == (same, "another key of theirs")


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        TIDINGS_REGISTRATION_KEY="hunter2",
        TIDINGS_OPERATOR_KEY="hunter2-of-an-operator",
        TIDINGS_NETWORK_DB_URL="mysql+aiomysql://u:hunter2@127.0.0.1/n",
    )
    assert "hunter2" not in str(printable(found))


async def test_an_address_in_use_is_one_clear_error(network: Network, tmp_path: Path) -> None:
    await network.start()
    for name in ("http", "tcp"):
        taken = getattr(network.addresses, name)
        second = Network(network.database, "tcp")
        second.blobs = network.blobs
        with pytest.raises(
            CannotListen, match=rf"TIDINGS_NETWORK_{name.upper()}_ADDRESS 127.0.0.1:{taken[1]}: .*in use"
        ):
            await second.start(**{f"{name}_address": taken})
