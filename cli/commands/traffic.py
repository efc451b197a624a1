"""`tidings traffic`: records the shape of live requests, replays it, or sends some of them to another installation."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path

import aiohttp
import msgspec

from cli import guard, process
from cli.counts import counted
from cli.traffic import runs
from cli.traffic.runs import Tee
from cli.traffic.shapes import NumberRange
from cli.traffic.target import PASSWORD, TIMEOUT, LoginRefused, TrafficTarget
from tidings.aio import service

MAX_SECONDS = 10 * 365 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    what = parser.add_subparsers(dest="what", required=True, metavar="record|replay|tee")
    recording = what.add_parser(
        "record", help="record arrival times, types and sizes of requests, without contents or numbers"
    )
    replaying = what.add_parser("replay", help="replay requests of a recorded shape")
    teeing = what.add_parser("tee", help="send a share of live requests also to another installation")
    recording.add_argument("file", type=Path, help="output file: one line of JSON per request")
    recording.add_argument(
        "--limit", type=int, default=10_000_000, help="number of requests after which it ends (10,000,000)"
    )
    replaying.add_argument("file", type=Path, help="what was recorded")
    replaying.add_argument("--speed", type=float, default=1.0, help="speed relative to the recording (1)")
    teeing.add_argument("--share", type=float, default=0.1, help="share of the recipients, from 0 to 1 (0.1)")
    teeing.add_argument(
        "--contents", action="store_true", help="send the original contents instead of texts of the same length"
    )
    for each in (recording, teeing):
        each.add_argument("--socket", type=Path, required=True, help="path in TIDINGS_TAP of the Webapps")
        each.add_argument(
            "--seconds", type=float, default=MAX_SECONDS, help="duration in seconds (default: until Ctrl-C)"
        )
    for each in (replaying, teeing):
        each.add_argument("--to", required=True, metavar="URL", help="the API of the other installation")
        each.add_argument("--user", default="admin", help=f"there, with the password in {PASSWORD} (admin)")
        each.add_argument("--first", type=int, default=15550110000, help="first recipient number")
        each.add_argument("--count", type=int, default=1000, help="number of recipients (1000)")
        each.add_argument(
            "--in-flight", type=int, default=500, help="maximum number of concurrent requests; others are dropped (500)"
        )


def run(options: argparse.Namespace) -> int:
    """Record, replay or copy requests until done or Ctrl-C.

    Returns 1 if a request of a replay was dropped or not answered with 200 or 201, else 0.
    """
    for name, least, most in (
        ("share", 0, 1),
        ("speed", 0.001, 1000),
        ("in_flight", 1, 100_000),
        ("count", 1, 10**9),
        ("limit", 1, 10**12),
        ("seconds", 0, MAX_SECONDS),
    ):
        value = getattr(options, name, least)
        if not least <= value <= most:
            raise guard.CommandFailure(f"--{name.replace('_', '-')} is not from {least} to {most}")
    try:
        return int(process.run_loop(_run(options)))
    except LoginRefused as error:
        raise guard.CommandFailure(str(error)) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise guard.CommandFailure(f"--to {options.to!r} is not a URL like http://127.0.0.1:9090") from error
    except aiohttp.ClientError as error:
        raise guard.CommandFailure(f"{options.to}: {error}") from error
    except TimeoutError as error:
        raise guard.CommandFailure(f"{options.to}: no response within {TIMEOUT:g} s") from error
    except msgspec.DecodeError as error:
        raise guard.CommandFailure(f"{options.file}: {error}") from error


async def _run(options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    service.stop_on_signals(stop)
    if options.what == "record":
        print(f"recording requests to Webapps with TIDINGS_TAP={options.socket} (Ctrl-C to stop)", flush=True)
        count = await runs.record(options.socket, options.file, seconds=options.seconds, limit=options.limit, stop=stop)
        print(f"{counted(count, 'request')} in {options.file}", flush=True)
        return 0
    numbers = NumberRange(options.first, options.count)
    password = os.environ.get(PASSWORD, "")
    async with TrafficTarget(options.to, options.user, password, in_flight=options.in_flight) as target:
        if options.what == "tee":
            tee = Tee(target, options.share, numbers, with_contents=options.contents)
            await runs.tee(options.socket, tee, target.stats, seconds=options.seconds, stop=stop, show=_show)
            return 0
        late = await runs.replay(runs.read(options.file), target, numbers, speed=options.speed, stop=stop)
    _show({**target.stats.describe(), "latest_s": round(late, 3)})
    answers = target.stats.statuses
    return 0 if target.stats.sent == answers["200"] + answers["201"] and not target.stats.dropped else guard.FAILED


def _show(line: object) -> None:
    print(json.dumps(line), flush=True)
