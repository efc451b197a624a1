"""`tidings robots`: runs the simulated recipients."""

from __future__ import annotations

import argparse
import asyncio

import handset.services
import handset.settings
from cli import process
from handset.settings import RobotsSettings

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Answer messages until SIGINT or SIGTERM."""
    return process.run("robots", handset.settings.RobotsSettings.read, _serve, options)


async def _serve(settings: RobotsSettings, stop: asyncio.Event, ready: process.Ready) -> None:
    is_ready = asyncio.Event()

    async def announce() -> None:
        await is_ready.wait()
        ready({"log": str(settings.log_path), "per_kind": settings.per_kind, "prefixes": settings.prefixes})

    announcing = asyncio.create_task(announce())
    try:
        await handset.services.run_robots(settings, stop, is_ready)
    finally:
        announcing.cancel()
