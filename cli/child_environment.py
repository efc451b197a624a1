"""Environment of each process that `tidings up` starts, without the secrets of the other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidings.secrets import api_key, first_password, process_secrets, secret_sources
from tidings.secrets.process_secrets import CoreappSecrets
from tidings.secrets.secret_files import OWNERS

# Process whose secrets a command reads, for commands that are not named like their process.
_PROCESSES = {"robots": "handset"}
# Variables with secrets that an installation cannot generate, and the processes that read them.
_OTHERS: Mapping[str, tuple[str, ...]] = {
    "WA_DB_PASSWORD": ("webapp", "coreapp", "network"),
    "WA_DB_PASSWORD" + secret_sources.FILE: ("webapp", "coreapp", "network"),
    "TIDINGS_BUSINESS_DB_URL": ("webapp", "coreapp"),
    "TIDINGS_NETWORK_DB_URL": ("network",),
    "TIDINGS_REDIS_URL": ("network",),
    "TIDINGS_REDIS_PASSWORD": ("network",),
    "TIDINGS_REDIS_SENTINEL_PASSWORD": ("network",),
    "TIDINGS_HANDSET_DB_URL": ("handset",),
    "TIDINGS_OUTGOING_PROXY": ("webapp", "coreapp"),
    api_key.VARIABLE: ("webapp", "coreapp", "network"),
    api_key.VARIABLE + secret_sources.FILE: ("webapp", "coreapp", "network"),
    api_key.OPERATOR_VARIABLE: ("network",),
    api_key.OPERATOR_VARIABLE + secret_sources.FILE: ("network",),
    first_password.VARIABLE: ("webapp",),
    first_password.VARIABLE + secret_sources.FILE: ("webapp",),
}


def of(command: str, variables: Mapping[str, str], secrets: CoreappSecrets) -> dict[str, str]:
    """Return the part of `variables` that `tidings <command>` may read.

    A process that needs only a key derived from `TIDINGS_MASTER_KEY` gets the derived key instead of the master key.

    secrets: secrets as the Coreapp reads them in this environment.
    """
    process = _PROCESSES.get(command, command)
    derived: dict[str, Sequence[bytes]] = {}
    if (master := process_secrets.VARIABLES["master_key"]) in variables and secrets.settings_key.source == master:
        derived["settings_key"] = secrets.settings_key.keys
        derived["handset_key"] = process_secrets.derived("handset_key", secrets.master_key.keys)
    foreign = set()
    added = {}
    for field, name in process_secrets.VARIABLES.items():
        names = {name, name + secret_sources.FILE, name + secret_sources.COMMAND}
        if field not in OWNERS[process]:
            foreign |= names
        elif field in derived and not names & variables.keys():
            added[name] = " ".join(key.hex() for key in derived[field])
    foreign |= {name for name, owners in _OTHERS.items() if process not in owners}
    return {name: value for name, value in variables.items() if name not in foreign} | added
