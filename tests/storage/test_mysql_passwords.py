"""`caching_sha2_password`, the default of MySQL 8: over TLS, by the server's RSA key, and from its cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import database_server
from harness.mariadb import MariaDB
from tests.authority import Authority
from tidings.installation.settings import DatabaseSettings
from tidings.net.tls import TlsFiles
from tidings.storage.database import Database, DatabaseError

AUTHORITY = Authority()
NAME = "localhost"
PASSWORD = "a long password, with: signs @/?"
ENCODED = "a%20long%20password%2C%20with%3A%20signs%20%40%2F%3F"

pytestmark = pytest.mark.skipif(database_server.kind() == "mariadb", reason="MariaDB has no such passwords")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    files = AUTHORITY.files(tmp_path_factory.mktemp("tls"), "server", NAME, of_rsa=True)
    paths = (("ssl-cert", files.chain), ("ssl-key", files.key), ("ssl-ca", files.authorities))
    made = database_server.make(flush_log=0, options=tuple(f"--{name}={path}" for name, path in paths))
    made.start()
    with made.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER hashed@'%%' IDENTIFIED WITH caching_sha2_password BY %s", (PASSWORD,))
    yield made
    made.remove()


@pytest.fixture
def trust(tmp_path: Path) -> TlsFiles:
    return TlsFiles(authorities=AUTHORITY.files(tmp_path, "client", "client").authorities)


async def user(server: MariaDB, password: str, files: TlsFiles | None) -> str:
    """Return the user that the server has identified on a new connection."""
    url = f"mysql+aiomysql://hashed:{password}@{NAME}:{server.port}/"
    database = Database(DatabaseSettings(url, tls=files), "business")
    try:
        async with database.reading() as connection:
            return str((await connection.exec_driver_sql("SELECT CURRENT_USER()")).scalar_one())
    finally:
        await database.close()


def forget(server: MariaDB) -> None:
    """Clear the server's cache, so that the whole password is needed."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH PRIVILEGES")


@pytest.mark.parametrize("over_tls", [True, False], ids=["tls", "plaintext"])
async def test_a_password_is_accepted_at_the_first_connection_and_from_the_cache(
    server: MariaDB, trust: TlsFiles, over_tls: bool
) -> None:
    forget(server)
    files = trust if over_tls else None
    assert await user(server, ENCODED, files) == "hashed@%"
    assert await user(server, ENCODED, files) == "hashed@%"


@pytest.mark.parametrize("over_tls", [True, False], ids=["tls", "plaintext"])
async def test_a_wrong_password_is_refused(server: MariaDB, trust: TlsFiles, over_tls: bool) -> None:
    forget(server)
    with pytest.raises(DatabaseError, match="Access denied"):
        await user(server, "wrong", trust if over_tls else None)
