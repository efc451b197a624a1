"""Private MySQL server, with the interface of the private MariaDB."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from harness import mysql_packages
from harness.mariadb import MariaDB, as_current_user
from harness.mysql_packages import Distribution

# The administrator that `--initialize` creates may only use the socket. These use the default `caching_sha2_password`.
_USERS = "CREATE USER IF NOT EXISTS root@127.0.0.1;\nGRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;\n"


class MySQL(MariaDB):
    """One server on one directory; see `MariaDB`."""

    fetch: Callable[[], Distribution] = staticmethod(mysql_packages.mysql8)
    # Without certificates MySQL generates one and offers TLS; MariaDB offers none.
    without_tls: tuple[str, ...] = ("--skip-ssl",)

    def _find_programs(self) -> None:
        self._distribution = type(self).fetch()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **dict(self._distribution.environment)}

    def _program(self) -> list[str]:
        assert self.directory is not None
        return [
            *self._distribution.command,
            "--no-defaults",
            *as_current_user(),
            *self._distribution.options,
            f"--datadir={self.directory / 'data'}",
            f"--tmpdir={self.directory}",
            f"--secure-file-priv={self.directory}",
            "--log-error-verbosity=1",
        ]

    def _command(self) -> list[str]:
        assert self.directory is not None
        tls = () if any(option.startswith("--ssl-cert") for option in self._options) else self.without_tls
        return [*self._program(), *self._limits(), *tls, "--mysqlx=OFF", f"--init-file={self.directory / 'users.sql'}"]

    def _initialize(self) -> None:
        assert self.directory is not None
        (self.directory / "users.sql").write_text(_USERS)
        done = subprocess.run(
            [*self._program(), "--initialize-insecure"],
            env=self._environment(),
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if done.returncode:
            raise RuntimeError(f"mysqld --initialize-insecure failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


class MySQL9(MySQL):
    """MySQL 9 of Debian unstable."""

    fetch = staticmethod(mysql_packages.mysql9)
    without_tls = ("--tls-version=",)
