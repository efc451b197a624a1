"""`tidings certificates`: creates a private authority for the installation, and a certificate for each process."""

from __future__ import annotations

import argparse
import datetime
import os
import re
from pathlib import Path

from cli.authority import AUTHORITY, RENEW_DAYS, Authority
from cli.guard import CommandFailure
from tidings.secrets import secret_sources
from tidings.secrets.secret_sources import SecretUnavailable

PROCESSES = ("webapp", "coreapp", "network", "robots", "database")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
DAYS = 397
# Secret from which the authority is derived where containers share no directory.
SEED = "TIDINGS_AUTHORITY_SEED"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the directory and the processes that get a certificate."""
    parser.epilog = (
        "Makes an authority (ca.pem, ca.key) and a certificate with its key for each process (NAME.pem, NAME.key), "
        f"as far as they are not there. Run again, it renews what ends within {RENEW_DAYS} days; processes notice. "
        f"{SEED} (or a file, {SEED}_FILE) determines the authority's key: containers that have no directory in common "
        "each make their own certificate, and believe those of the others."
    )
    parser.add_argument("directory", metavar="DIRECTORY", type=Path)
    parser.add_argument(
        "processes",
        metavar="NAME[=HOST,...]",
        nargs="*",
        help=f"a process and its host names, besides its own name and loopback (default: {' '.join(PROCESSES)})",
    )
    parser.add_argument("--days", type=int, default=DAYS, help="days for which each is valid (default: %(default)s)")
    parser.add_argument("--renew", action="store_true", help="renew all of them, whatever their expiry")


def run(options: argparse.Namespace) -> int:
    """Issue missing certificates, and print one line per certificate."""
    if not 1 <= options.days <= 3650:
        raise CommandFailure("--days is not from 1 to 3650")
    wanted = [_parse(word) for word in options.processes or PROCESSES]
    directory = options.directory.expanduser().absolute()
    authority, is_new = _authority(directory)
    print(_line(AUTHORITY, (), authority.certificate.not_valid_after_utc, made=is_new))
    for name, hosts in wanted:
        ends, made = authority.renew(name, hosts, options.days, anyway=options.renew)
        print(_line(name, hosts, ends, made=made))
    key = directory / f"{AUTHORITY}.key"
    maker = str(key) if key.exists() else SEED
    print(
        f"\nEach process is given, with its NAME:\n"
        f"  TIDINGS_TLS_CERTIFICATE={directory}/NAME.pem TIDINGS_TLS_KEY={directory}/NAME.key "
        f"TIDINGS_TLS_CA={directory}/{AUTHORITY}.pem\n"
        f"{maker} makes certificates that all of them believe: no process needs it."
    )
    return 0


def _authority(directory: Path) -> tuple[Authority, bool]:
    """Return the authority, and whether it was created. Raises `CommandFailure` and `OSError`.

    It is derived from the seed if one is set; otherwise it is the directory's.
    """
    now = datetime.datetime.now(datetime.UTC)
    try:
        seed = secret_sources.read(os.environ, SEED)
    except SecretUnavailable as error:
        raise CommandFailure(str(error)) from None
    if not seed:
        if SEED in os.environ or f"{SEED}_FILE" in os.environ:
            raise CommandFailure(
                f"{SEED} is set and empty: each process would have an authority that no other one trusts"
            )
        return Authority.open(directory, now)
    if (directory / f"{AUTHORITY}.key").exists():
        raise CommandFailure(f"{directory} has its own authority: leave {SEED} out, or name another directory")
    return Authority.of_seed(directory, seed, now), True


def _parse(word: str) -> tuple[str, tuple[str, ...]]:
    name, _, hosts = word.partition("=")
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise CommandFailure(f"{name!r} cannot be the name of files of a process")
    given = tuple(host.strip() for host in hosts.split(",") if host.strip())
    return name, tuple(dict.fromkeys((*given, name, *LOOPBACK)))


def _line(name: str, hosts: tuple[str, ...], ends: datetime.datetime, *, made: bool) -> str:
    return f"{'made' if made else 'kept'}  {name}.pem  until {ends:%Y-%m-%d}  {' '.join(hosts)}".rstrip()
