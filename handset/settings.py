"""The settings of robots and of a terminal, from the environment."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from handset.robots.behaviours import MAX_PER_KIND, PREFIX, PREFIXES, Behaviour
from tidings.runtime import settings as common
from tidings.runtime.settings import DatabaseSettings, Environment, Secrets

FAMILY = "handset"
DEFAULT_BUSINESS = "15550000000"
_PREFIX = re.compile("[1-9][0-9]{0,8}")


@dataclasses.dataclass(frozen=True, slots=True)
class RobotsSettings:
    """One process with robots.

    kinds:       the behaviours that run; per_kind: robots of each.
    log_path:    the JSON lines of what was shown; log_limit: bytes of one such file, 0 for no limit.
    block:       the number that robots of the blocking kind block.
    prekeys:     one-time pre-keys that each robot keeps on the network.
    connections: over which they are logged in.
    embedded:    bring the tables up to date at start instead of refusing to start.
    prefixes:    of the robots' numbers; there are `per_kind` of each kind with each of them.
    """

    data_dir: Path
    database: DatabaseSettings
    secrets: Secrets
    http_url: str
    tcp_address: tuple[str, int]
    per_kind: int
    kinds: tuple[Behaviour, ...]
    log_path: Path
    block: str
    prekeys: int
    connections: int
    embedded: bool
    prefixes: tuple[str, ...] = PREFIXES
    log_limit: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TerminalSettings:
    """One handset in a terminal; its tables are always brought up to date.

    files: where `/save` puts what came.
    name: of the profile, which goes with each message; empty for none.
    registration_key: empty when this installation has none; a code is asked for then.
    """

    data_dir: Path
    database: DatabaseSettings
    master_key: bytes = dataclasses.field(repr=False)
    registration_key: str = dataclasses.field(repr=False)
    http_url: str
    files: Path
    name: str = ""


def read_robots(env: Environment) -> RobotsSettings:
    """Raises `SettingsError`."""
    data_dir = common.data_dir(env)
    env.check()
    all_kinds = ",".join(kind.value for kind in Behaviour)
    kinds = []
    for part in env.text("TIDINGS_ROBOTS_KINDS", all_kinds).split(","):
        try:
            kinds.append(Behaviour(part.strip()))
        except ValueError:
            env.problem(f"TIDINGS_ROBOTS_KINDS: {part.strip()!r} is not one of {all_kinds}")
    block = env.text("TIDINGS_ROBOTS_BLOCK", env.text("TIDINGS_BUSINESS_NUMBER", DEFAULT_BUSINESS)).lstrip("+")
    if not block.isdigit():
        env.problem(f"TIDINGS_ROBOTS_BLOCK={block!r} is not a number")
    prefixes = [part.strip().removeprefix("+") for part in env.text("TIDINGS_ROBOTS_PREFIXES", PREFIX).split(",")]
    for prefix in prefixes:
        if not _PREFIX.fullmatch(prefix):
            env.problem(f"TIDINGS_ROBOTS_PREFIXES: {prefix!r} is not 1 to 9 digits that begin with a country code")
    result = RobotsSettings(
        data_dir=data_dir,
        database=_database(env, data_dir),
        secrets=common.read_secrets(env, data_dir),
        http_url=_http_url(env),
        tcp_address=env.address("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096"),
        per_kind=env.integer("TIDINGS_ROBOTS_PER_KIND", 100, low=1, high=MAX_PER_KIND),
        kinds=tuple(dict.fromkeys(kinds)),
        log_path=Path(env.text("TIDINGS_ROBOTS_LOG", str(data_dir / "robots.jsonl"))).expanduser().absolute(),
        log_limit=env.integer("TIDINGS_ROBOTS_LOG_MB", 16) * 1024 * 1024,
        block=block,
        prekeys=env.integer("TIDINGS_ROBOTS_PREKEYS", 5, low=0, high=100),
        connections=env.integer("TIDINGS_ROBOTS_CONNECTIONS", 2, low=1, high=64),
        embedded=env.flag("TIDINGS_EMBEDDED"),
        prefixes=tuple(dict.fromkeys(prefixes)),
    )
    env.check()
    return result


def read_terminal(env: Environment) -> TerminalSettings:
    """Raises `SettingsError`."""
    data_dir = common.data_dir(env)
    env.check()
    # A directory that has no secrets yet belongs to nobody's installation: its fresh registration key opens nothing.
    has_key = (data_dir / "secrets.json").exists() or bool(env.text("TIDINGS_REGISTRATION_KEY"))
    secrets = common.read_secrets(env, data_dir)
    result = TerminalSettings(
        data_dir=data_dir,
        database=_database(env, data_dir),
        master_key=secrets.master_key,
        registration_key=secrets.registration_key if has_key else "",
        http_url=_http_url(env),
        files=Path(env.text("TIDINGS_HANDSET_FILES", str(data_dir / "files"))).expanduser().absolute(),
        name=env.text("TIDINGS_HANDSET_NAME")[:128],
    )
    env.check()
    return result


def _http_url(env: Environment) -> str:
    url = env.text("TIDINGS_NETWORK_HTTP_URL", "http://127.0.0.1:9095").rstrip("/")
    if not url.startswith(("http://", "https://")):
        env.problem(f"TIDINGS_NETWORK_HTTP_URL={url!r} is not http://… or https://…")
    return url


def _database(env: Environment, data_dir: Path) -> DatabaseSettings:
    """Recipients keep a file of their own, whatever database the business uses."""
    url = env.text("TIDINGS_HANDSET_DB_URL", f"sqlite+aiosqlite:///{data_dir / f'{FAMILY}.db'}")
    if not url.startswith(("sqlite+aiosqlite://", "mysql+aiomysql://")):
        env.problem(
            f"TIDINGS_HANDSET_DB_URL={common.describe_url(url)!r} is neither sqlite+aiosqlite:// nor mysql+aiomysql://"
        )
    return DatabaseSettings(url=url, pool_size=3)
