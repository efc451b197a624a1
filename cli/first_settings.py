"""The five settings of each process that matter first, for its `--help`."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence

WIDTH = 100  # characters of a line
INDENT = 4  # characters before a meaning


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Environment variable."""

    name: str
    meaning: str
    default: str  # empty for none


_DATA_DIR = Setting("TIDINGS_DATA_DIR", "directory of databases, files, secrets and logs", "data")
_NUMBER = Setting("TIDINGS_BUSINESS_NUMBER", "phone number of the business", "15550000000")
_DATABASE = Setting(
    "WA_DB_ENGINE",
    "SQLITE for files in the data directory; MYSQL for a MySQL or MariaDB server, with WA_DB_HOSTNAME, WA_DB_USERNAME "
    "and WA_DB_PASSWORD",
    "SQLITE",
)
_API = Setting("TIDINGS_API_ADDRESS", "address at which the API listens", "127.0.0.1:9090")
_NETWORK_URL = Setting("TIDINGS_NETWORK_HTTP_URL", "URL of the network's HTTP side", "http://127.0.0.1:9095")
_NETWORK_TCP = Setting("TIDINGS_NETWORK_TCP_ADDRESS", "address of the network's TCP side", "127.0.0.1:9096")

# By command.
SETTINGS: Mapping[str, Sequence[Setting]] = {
    "up": (
        _DATA_DIR,
        _API,
        _NUMBER,
        _DATABASE,
        Setting(
            "TIDINGS_OUTGOING_ALLOW_WEBHOOKS",
            "private networks that webhooks may be in; while the API listens on loopback, this machine",
            "TIDINGS_OUTGOING_ALLOW",
        ),
    ),
    "webapp": (
        _DATA_DIR,
        _API,
        _NUMBER,
        _DATABASE,
        Setting("TIDINGS_ADMIN_PASSWORD", "first password of the user admin", ""),
    ),
    "coreapp": (
        _DATA_DIR,
        Setting("TIDINGS_COREAPP_ADDRESS", "address at which Webapps connect", "127.0.0.1:6252"),
        _NUMBER,
        _DATABASE,
        _NETWORK_URL,
    ),
    "network": (
        _DATA_DIR,
        Setting("TIDINGS_NETWORK_HTTP_ADDRESS", "address at which HTTP and WebSocket listen", "127.0.0.1:9095"),
        Setting("TIDINGS_NETWORK_TCP_ADDRESS", "address at which TCP listens", "127.0.0.1:9096"),
        _DATABASE,
        Setting("TIDINGS_NETWORK_BUSINESS_NUMBERS", "numbers registered only with the registration key", ""),
    ),
    "robots": (
        _DATA_DIR,
        _NETWORK_URL,
        _NETWORK_TCP,
        Setting("TIDINGS_ROBOTS_PER_KIND", "robots of each kind", "100"),
        Setting("TIDINGS_ROBOTS_PREFIXES", "prefixes of the robots' numbers", "15550"),
    ),
    "handset": (
        _DATA_DIR,
        _NETWORK_URL,
        Setting("TIDINGS_HANDSET_NAME", "profile name that the business receives", ""),
        Setting("TIDINGS_HANDSET_PIN", "6 to 20 digits of a registration lock for the number", ""),
        Setting("TIDINGS_HANDSET_FILES", "directory in which /save stores files", "files in the data directory"),
    ),
}


def describe(command: str) -> str:
    """Return the text for the end of a command's help; empty for a command that is no process."""
    if command not in SETTINGS:
        return ""
    lines = ["Settings are environment variables. The five that matter first:", ""]
    for setting in SETTINGS[command]:
        default = f"default: {setting.default}" if setting.default else "no default"
        meaning = textwrap.wrap(f"{setting.meaning} ({default})", WIDTH - INDENT, break_on_hyphens=False)
        lines += [f"  {setting.name}", *(" " * INDENT + line for line in meaning)]
    return "\n".join([*lines, "", "docs/configuration.md lists all settings."])
