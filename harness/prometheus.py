"""Private Prometheus with the configuration of docker/monitoring, and Debian's tools for its rules."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from harness import packages, polling, spawn
from harness.mariadb import free_port

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "docker" / "monitoring" / "prometheus"
PACKAGE = "prometheus"
UNPACKED = ROOT / ".cache" / "prometheus"
START_SECONDS = 30.0


class PromtoolError(Exception):
    """`promtool` found an error; `str()` is its output."""


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`.

    If it is not installed, Debian's package is fetched and only unpacked: an installation would start a service on the
    port of our API. Raises `PackageMissing`.
    """
    found = packages.find(name)
    if found is None:
        unpacked = UNPACKED / "usr" / "bin" / name
        if not unpacked.exists():
            packages.unpack(PACKAGE, UNPACKED)
        found = str(unpacked)
    return found


def promtool(*words: str, cwd: Path = CONFIGURATION) -> str:
    """Run `promtool` and return its output. Raises `PromtoolError`."""
    command = [program("promtool"), *words]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise PromtoolError(done.stdout)
    return done.stdout


def prepare(
    directory: Path,
    key: str,
    targets: Mapping[str, Sequence[str]],
    *,
    https: Sequence[str] = (),
    interval: str | None = "1s",
) -> Path:
    """Write a copy of the configuration for one run, and return its path. The files that it names are in `directory`.

    interval: time between two scrapes and two evaluations; `None` for the configured one.
    targets: addresses by the name of their job, replacing discovery by the names of compose files.
    https: jobs that are scraped over TLS, whose self-signed certificates are not verified; the others use plaintext.
    """
    text = (CONFIGURATION / "prometheus.yml").read_text(encoding="utf-8")
    configuration: dict[str, Any] = yaml.safe_load(text)
    if interval is not None:
        names = ("scrape_interval", "scrape_timeout", "evaluation_interval")
        configuration["global"] = dict.fromkeys(names, interval)
    configuration["rule_files"] = [str(CONFIGURATION / name) for name in configuration["rule_files"]]
    (directory / "api_key").write_text(key)
    for job in configuration["scrape_configs"]:
        del job["dns_sd_configs"]
        if job["job_name"] in https:
            job["tls_config"] = {"insecure_skip_verify": True}
        else:
            job["scheme"] = "http"
            job.pop("tls_config", None)
        job["authorization"]["credentials_file"] = str(directory / "api_key")
        for files in job["file_sd_configs"]:
            files["files"] = [str(directory / name) for name in files["files"]]
    (directory / "targets").mkdir(exist_ok=True)
    for job_name, addresses in targets.items():
        groups = yaml.safe_dump([{"targets": list(addresses)}])
        (directory / "targets" / f"{job_name}.yml").write_text(groups)
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(configuration))
    return path


class Prometheus:
    """A server that scrapes, as an asynchronous context manager. configuration: from `prepare`."""

    def __init__(self, configuration: Path, log: Path) -> None:
        self._configuration = configuration
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="tidings-prometheus-")
        self.port = free_port()

    async def __aenter__(self) -> Self:
        command = [program("prometheus"), f"--config.file={self._configuration}"]
        command += [f"--storage.tsdb.path={self._directory.name}", f"--web.listen-address=127.0.0.1:{self.port}"]
        with self._log.open("ab") as log:
            self._process = spawn.start(command, stdout=log, stderr=log)
        await asyncio.to_thread(polling.wait_until_up, self._process, self._is_ready, self._log, seconds=START_SECONDS)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.terminate()
        await asyncio.to_thread(self._process.wait)
        self._directory.cleanup()

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the present series of an expression."""
        return await self._request("query", query=expression)

    async def query_range(self, expression: str, start: float, end: float, *, step: float) -> list[dict[str, Any]]:
        """Return the series of an expression from `start` to `end` (Unix seconds), one point every `step` seconds."""
        return await self._request("query_range", query=expression, start=str(start), end=str(end), step=str(step))

    async def _request(self, what: str, **parameters: str) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        response = await asyncio.to_thread(_get, url)
        found: list[dict[str, Any]] = response["data"]["result"]
        return found

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1):
                return True
        except OSError:
            return False


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(f"{urllib.parse.unquote_plus(url)}: {error.read().decode()}") from error
