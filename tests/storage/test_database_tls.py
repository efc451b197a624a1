"""TLS to a server that requires it, and to one that does not support it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from cli import tables
from harness import database_server
from harness.mariadb import MariaDB
from harness.proxy import Proxy
from tests.authority import Authority
from tidings.installation.settings import DatabaseSettings, read_database
from tidings.net.tls import TlsFiles, UnusableCertificate
from tidings.storage import outages, schema
from tidings.storage.database import Database, DatabaseError

OURS, THEIRS = Authority(), Authority("Another authority")
NAME = "localhost"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def secure(directory: Path) -> Iterator[MariaDB]:
    """Server that requires TLS, and a client certificate from the user `certified`."""
    # RSA, as MySQL 8.0 before 8.0.16 supports no elliptic curves.
    files = OURS.files(directory, "server", NAME, of_rsa=True)
    paths = (("ssl-cert", files.chain), ("ssl-key", files.key), ("ssl-ca", files.authorities))
    server = database_server.make(flush_log=0, options=tuple(f"--{name}={path}" for name, path in paths))
    server.start()
    try:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER certified@'%' REQUIRE X509")
            cursor.execute("GRANT ALL ON *.* TO certified@'%'")
            cursor.execute("CREATE USER anybody@'%'")
            cursor.execute("GRANT ALL ON *.* TO anybody@'%'")
            cursor.execute("SET GLOBAL require_secure_transport = ON")
        yield server
    finally:
        server.remove()


ReadCipher = Callable[..., Awaitable[str]]


@pytest.fixture
async def read_cipher() -> AsyncIterator[ReadCipher]:
    """Function that connects: `await read_cipher(url, files)` returns the cipher of the connection, empty for none."""
    opened: list[Database] = []

    async def cipher(url: str, files: TlsFiles | None) -> str:
        database = Database(DatabaseSettings(url, tls=files), "business")
        opened.append(database)
        async with database.reading() as connection:
            row = (await connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'")).one()
        return str(row[1])

    yield cipher
    for database in opened:
        await database.close()


def url(port: int, user: str = "anybody", host: str = NAME) -> str:
    return f"mysql+aiomysql://{user}@{host}:{port}/"


def trust(directory: Path) -> TlsFiles:
    return TlsFiles(authorities=str(directory / "server.ca"))


async def test_a_connection_is_encrypted_and_presents_its_client_certificate(
    secure: MariaDB, directory: Path, read_cipher: ReadCipher
) -> None:
    cipher = "DHE-RSA-AES" if database_server.kind() == "mysql8" else "TLS_AES"
    assert (await read_cipher(url(secure.port), trust(directory))).startswith(cipher)
    ours = OURS.files(directory, "client", "webapp")
    assert await read_cipher(url(secure.port, "certified"), ours)
    with pytest.raises(DatabaseError, match="Access denied"):
        await read_cipher(url(secure.port, "certified"), trust(directory))


def test_uvloop_connections_are_encrypted_too(secure: MariaDB, directory: Path) -> None:
    async def cipher() -> str:
        database = Database(DatabaseSettings(url(secure.port), tls=trust(directory)), "business")
        try:
            async with database.reading() as connection:
                return str((await connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'")).one()[1])
        finally:
            await database.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(cipher())


async def test_a_wrong_host_name_or_authority_is_an_outage_with_a_clear_error(
    secure: MariaDB, directory: Path, read_cipher: ReadCipher
) -> None:
    theirs = TlsFiles(authorities=THEIRS.files(directory, "theirs", NAME).authorities)
    for files, host, words in (
        (theirs, NAME, "the certificate is refused: self-signed"),
        (trust(directory), "127.0.0.1", "IP address mismatch"),
    ):
        with pytest.raises(DatabaseError, match=words) as caught:
            await read_cipher(url(secure.port, host=host), files)
        # An outage, not a permanent error: the certificate may be renewed in the meantime.
        assert outages.is_outage(caught.value)
        assert "the database cannot be used" in str(outages.describe(caught.value))


async def test_plaintext_is_refused_by_server_and_client(
    secure: MariaDB, mariadb: MariaDB, directory: Path, read_cipher: ReadCipher
) -> None:
    with pytest.raises(DatabaseError, match=r"Access denied|insecure"):
        await read_cipher(url(secure.port), None)
    # The password is not sent in the clear to a server, or to an attacker in its place, that offers no TLS.
    with pytest.raises(DatabaseError, match="offers no TLS"):
        await read_cipher(url(mariadb.port, "root"), trust(directory))


async def test_no_statement_is_visible_on_the_wire_over_tls(
    secure: MariaDB, directory: Path, read_cipher: ReadCipher
) -> None:
    proxy = Proxy("127.0.0.1", secure.port)
    await proxy.start()
    seen = proxy.record()
    try:
        for files, user in ((trust(directory), "anybody"), (None, "anybody")):
            database = Database(DatabaseSettings(url(proxy.address[1], user), tls=files), "business")
            try:
                async with database.reading() as connection:
                    await connection.exec_driver_sql("SELECT 'a canary in a statement'")
            except DatabaseError:
                assert files is None
            finally:
                await database.close()
    finally:
        await proxy.stop()
    # The server's greeting precedes TLS. The user's name is visible only without TLS, and in MariaDB's refusal.
    assert secure.version.encode() in seen
    assert b"canary" not in seen
    assert seen.count(b"anybody") == (2 if database_server.kind() == "mariadb" else 1)


async def test_migration_connects_over_tls_with_the_on_premises_variables(
    secure: MariaDB, directory: Path, tmp_path: Path
) -> None:
    ours = OURS.files(directory, "migrating", "webapp")
    variables = {
        "WA_DB_ENGINE": "MYSQL",
        "WA_DB_HOSTNAME": NAME,
        "WA_DB_PORT": str(secure.port),
        "WA_DB_USERNAME": "certified",
        "WA_DB_NAME_PREFIX": "tls_",
        "WA_DB_SSL_CA": ours.authorities,
        "WA_DB_SSL_CERT": ours.chain,
        "WA_DB_SSL_KEY": ours.key,
    }
    where = read_database(variables, tmp_path, "network")
    said: list[str] = []
    await tables.upgrade({"network": where}, said.append)
    database = Database(where, "network")
    try:
        assert f"empty → {await schema.revision(database)}" in said[0]
    finally:
        await database.close()
    with pytest.raises(UnusableCertificate, match=r"none\.pem: No such file"):
        await tables.upgrade(
            {"network": read_database({**variables, "WA_DB_SSL_CA": "none.pem"}, tmp_path, "network")}, print
        )
