"""Write time of the database: `benchmarks/mysqlslap.sh`, as the On-Premises API's documentation recommends."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from benchmarks.rig.calibration import MILLISECONDS, Calibration, CalibrationResources
from benchmarks.rig.run import RunFailed
from harness import packages
from harness.mariadb import MariaDB

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "mysqlslap.sh"
PACKAGE = "mariadb-client"
UNPACKED = ROOT / ".cache" / PACKAGE
_READING = re.compile(r"^([0-9.]+) ms a write", re.MULTILINE)


def program() -> str:
    """Return the path of `mysqlslap`. Where it is not installed, Debian's package is downloaded and unpacked only.

    Raises `PackageMissing`.
    """
    found = packages.find("mysqlslap") or packages.find("mariadb-slap")
    if found is None:
        path = UNPACKED / "usr" / "bin" / "mariadb-slap"
        if not path.exists():
            packages.unpack(PACKAGE, UNPACKED)
        found = str(path)
    return found


async def measure(server: MariaDB) -> float:
    """Return the milliseconds of one write, with five concurrent clients. Raises `RunFailed`."""
    environment = {
        **os.environ,
        "MYSQLSLAP": await asyncio.to_thread(program),
        "WA_DB_USERNAME": "root",
        "WA_DB_PASSWORD": "",
        "WA_DB_HOSTNAME": "127.0.0.1",
        "WA_DB_PORT": str(server.port),
    }
    process = await asyncio.create_subprocess_exec(
        SCRIPT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode(errors="replace")
    found = _READING.search(said)
    if process.returncode or found is None:
        raise RunFailed(f"mysqlslap ended with {process.returncode}: {said[-1000:]}")
    return float(found[1])


async def calibrate(resources: CalibrationResources) -> Calibration:
    """Run `mysqlslap` on the database of the runs."""
    return Calibration(
        "mysqlslap, a write of one of 5 clients", await measure(await resources.database()), MILLISECONDS
    )
