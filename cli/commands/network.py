"""`tidings network`: runs a node of the network, or several as workers."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from typing import Any

import network.services
import network.settings
from cli import process
from cli.workers import Workers
from network.settings import Settings

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return process.run("network", network.settings.Settings.read, _serve, options)


async def _serve(settings: Settings, stop: asyncio.Event, ready: process.Ready) -> None:
    if settings.workers == 1:
        await network.services.run(settings, stop, ready)
    else:
        environments = [worker_environment(os.environ, settings, index) for index in range(settings.workers)]
        await Workers("network", environments, grace=settings.drain).run(stop, lambda said: ready(_addresses(said)))


def worker_environment(variables: Mapping[str, str], settings: Settings, index: int) -> dict[str, str]:
    """Return the environment of one of several workers; each worker is a separate node.

    index: number of the worker, from 0.
    """
    own = {
        "TIDINGS_NETWORK_WORKERS": "1",
        "TIDINGS_NETWORK_REUSE_PORT": "1",
        "TIDINGS_NETWORK_NODE": f"{settings.cluster.node}-{index}"[-64:],
        "TIDINGS_PROFILE": "",
    }
    if settings.worker_port:
        own["TIDINGS_NETWORK_WORKER_PORT"] = str(settings.worker_port + index)
    for name, address in (
        ("TIDINGS_NETWORK_NODE_ADDRESS", settings.cluster.node_address),
        ("TIDINGS_NETWORK_METRICS_ADDRESS", settings.metrics_address),
    ):
        if address is not None and address[1]:
            host, port = address
            own[name] = f"[{host}]:{port + index}" if ":" in host else f"{host}:{port + index}"
    return {**variables, **own}


def _addresses(said: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in said.items() if name != "process"}
