"""Whether the databases that messages go through can be used: the business's, and the network's, which it tells of."""

from __future__ import annotations

import asyncio

import httpx

from tidings.storage.database import Database

# Seconds that the network has to answer; it gives its database two.
TIMEOUT = 2.5


class Databases:
    """Asked when somebody wants to know, and never remembered as `connected`."""

    def __init__(self, database: Database, network_http: str) -> None:
        """network_http: of the network, `http://127.0.0.1:9095`."""
        self._database = database
        self._url = f"{network_http}/health"
        self._client: httpx.AsyncClient | None = None

    async def are_alive(self) -> bool:
        """Do both answer, and take what is written?"""
        return all(await asyncio.gather(self._database.is_alive(), self._network_is_well()))

    async def close(self) -> None:
        """Close the connection to the network's health."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _network_is_well(self) -> bool:
        """Says the network that its database is away? That it cannot be reached is for its link to tell."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)
        try:
            answer = await self._client.get(self._url)
            told = answer.json()
        except httpx.TimeoutException:
            return False
        except (httpx.HTTPError, ValueError):
            return True
        return not isinstance(told, dict) or told.get("database", "ok") == "ok"
