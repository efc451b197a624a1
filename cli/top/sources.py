"""Scraped processes, and a scrape of all of them."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import httpx

from cli.top.samples import Samples
from tidings.config import env
from tidings.secrets.api_key import ApiKey

SECONDS = 3.0  # timeout of one process's response
MAX_BYTES = 16 * env.MIB  # of one response


@dataclasses.dataclass(frozen=True, slots=True)
class ScrapedProcess:
    """One process to scrape."""

    role: str  # `webapp`, `coreapp` or `network`
    url: str  # of its metrics

    @property
    def name(self) -> str:
        """Short unique name: role, host and port."""
        return f"{self.role} {urlsplit(self.url).netloc}"


@dataclasses.dataclass(frozen=True, slots=True)
class ScrapeResult:
    """Result of scraping one process."""

    source: ScrapedProcess
    samples: Samples | None  # None when the scrape failed
    error: str = ""  # why it failed


class Sources:
    """Scrapes processes over HTTP. Certificates of processes on this machine are not verified."""

    def __init__(self, sources: Sequence[ScrapedProcess], *, key: ApiKey, authorities: str = "") -> None:
        """Raises `OSError` when the file of authorities cannot be read.

        authorities: PEM file to verify servers on other machines; empty for the system's authorities.
        """
        self._sources = sources
        headers = {"Authorization": f"Apikey {key}"} if key else {}
        near = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        near.check_hostname, near.verify_mode = False, ssl.CERT_NONE
        far = ssl.create_default_context(cafile=authorities or None)
        self._clients: Mapping[bool, httpx.AsyncClient] = {
            is_near: httpx.AsyncClient(verify=context, headers=headers, timeout=SECONDS, trust_env=False)
            for is_near, context in ((True, near), (False, far))
        }

    async def read(self) -> Sequence[ScrapeResult]:
        """Scrape all processes concurrently. Errors are reported in the readings."""
        return await asyncio.gather(*(self._read(source) for source in self._sources))

    async def close(self) -> None:
        """Close the kept-alive connections."""
        for client in self._clients.values():
            await client.aclose()

    async def _read(self, source: ScrapedProcess) -> ScrapeResult:
        client = self._clients[env.is_loopback(urlsplit(source.url).hostname or "")]
        try:
            async with asyncio.timeout(SECONDS):
                answer = await client.get(source.url, headers={"Accept": "text/plain"})
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            return ScrapeResult(source, None, str(error) or type(error).__name__)
        if answer.status_code == 401:
            return ScrapeResult(source, None, "it wants WA_API_KEY")
        if answer.status_code != 200 or len(answer.content) > MAX_BYTES:
            return ScrapeResult(source, None, f"HTTP {answer.status_code}")
        try:
            return ScrapeResult(source, Samples.parse(answer.text, time.monotonic()))
        except ValueError as error:
            return ScrapeResult(source, None, f"no metrics: {error}"[:100])
