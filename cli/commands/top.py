"""`tidings top`: shows rates, queues, latencies and processes of an installation, continuously or once."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import sys
import time
import urllib.parse
from collections.abc import Sequence

from cli import guard, process
from cli.settings import TopSettings
from cli.top import live, screen
from cli.top.snapshot import Snapshot, compare
from cli.top.sources import ScrapedProcess, Sources
from tidings.config import env
from tidings.net import exposure

INTERVAL = 2.0
_PATHS = {"webapp": "/metrics", "coreapp": "/metrics", "network": "/metrics"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the processes, the interval and the output format."""
    for role in _PATHS:
        parser.add_argument(
            f"--{role}",
            action="append",
            metavar="ADDRESS",
            default=[],
            help=f"host:port or URL of a {role}, several times for several (default: that of this environment)",
        )
    parser.add_argument(
        "--interval", type=float, default=INTERVAL, metavar="SECONDS", help="seconds between two updates (2)"
    )
    parser.add_argument("--sort", choices=screen.SORTS, default=screen.SORTS[0], help="processes by this")
    parser.add_argument(
        "--ca", default="", metavar="FILE", help="PEM file of CA certificates that verify servers on other machines"
    )
    parser.add_argument("--once", action="store_true", help="measure over one interval, print the result and exit")
    parser.add_argument("--json", action="store_true", help="with --once: one JSON object")


def run(options: argparse.Namespace) -> int:
    """Show the view until `q`, or print it once. The exit status of `--once` is 1 if a process does not respond."""
    if not 0.1 <= options.interval <= 3600:
        raise guard.CommandFailure("--interval is not from 0.1 to 3600 seconds")
    if options.json and not options.once:
        raise guard.CommandFailure("--json requires --once")
    if not options.once and not sys.stdout.isatty():
        raise guard.CommandFailure("standard output is not a terminal: use --once")
    settings = TopSettings.read(os.environ)
    authorities = options.ca or settings.tls_files.authorities
    try:
        sources = Sources(_sources(options, settings), key=settings.api_key, authorities=authorities)
    except OSError as error:
        raise guard.CommandFailure(f"{authorities}: {error.strerror or error}") from error
    return int(process.run_loop(_run(options, sources)))


async def _run(options: argparse.Namespace, sources: Sources) -> int:
    try:
        if not options.once:
            await live.LiveView(sources, interval=options.interval, sort=options.sort).run()
            return 0
        before = await sources.read()
        await asyncio.sleep(options.interval)
        snapshot = compare(before, await sources.read(), time.time())
    finally:
        await sources.close()
    if options.json:
        print(json.dumps(dataclasses.asdict(snapshot), indent=1))
    else:
        print("\n".join(screen.lines(snapshot, sort=options.sort)))
    return _status(snapshot)


def _status(snapshot: Snapshot) -> int:
    return guard.FAILED if any(row.state != "up" for row in snapshot.processes) else 0


def _sources(options: argparse.Namespace, settings: TopSettings) -> Sequence[ScrapedProcess]:
    defaults = {
        "webapp": f"{'https' if settings.api_tls else 'http'}://{_near(settings.api_address)}",
        "coreapp": f"{'http' if _is_clear(settings) else 'https'}://{_near(settings.coreapp_metrics)}",
        "network": settings.network_http,
    }
    return [
        ScrapedProcess(role, _url(address, path))
        for role, path in _PATHS.items()
        for address in (getattr(options, role) or [defaults[role]])
    ]


def _is_clear(settings: TopSettings) -> bool:
    return env.is_loopback(settings.coreapp_metrics[0]) or exposure.METRICS in settings.plaintext


def _url(address: str, path: str) -> str:
    url = address if "://" in address else f"http://{address}"
    try:
        urllib.parse.urlsplit(url)
    except ValueError as error:
        raise guard.CommandFailure(f"{address!r} is not an address: {error}") from error
    return url.rstrip("/") + ("" if url.rstrip("/").endswith(path) else path)


def _near(address: tuple[str, int]) -> str:
    """Return `host:port` for connections from this machine."""
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
