"""Environment variables that nothing reads: a misspelt setting is reported instead of ignored.

The names stand here as literals, so that a process need not import the settings of every other one; a test compares
them with the settings classes.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping, Sequence

from tidings.runtime import secret_sources
from tidings.runtime.env import SettingsError, parse_flag

log = logging.getLogger(__name__)

PREFIXES = ("TIDINGS_", "WA_")
STRICT = "TIDINGS_STRICT_ENV"

# Read by a process or a command.
SETTINGS = frozenset(
    {
        "TIDINGS_ALLOW_PLAINTEXT",
        "TIDINGS_ALLOW_PQ_DOWNGRADE",
        "TIDINGS_API_ADDRESS",
        "TIDINGS_API_CONNECTIONS",
        "TIDINGS_API_TLS",
        "TIDINGS_API_TLS_NAMES",
        "TIDINGS_AUTO_REGISTER",
        "TIDINGS_BLOCKED_STATUS",
        "TIDINGS_BUSINESS_DB_URL",
        "TIDINGS_BUSINESS_NUMBER",
        "TIDINGS_CALLBACK_QUEUE_LIMIT",
        "TIDINGS_CHECK_UNKNOWN_CONTACTS",
        "TIDINGS_CONTACTS_BURST",
        "TIDINGS_CONTACTS_RATE",
        "TIDINGS_CONVERSATION_TYPES",
        "TIDINGS_COREAPP_ADDRESS",
        "TIDINGS_COREAPP_ADVERTISED_HOST",
        "TIDINGS_COREAPP_METRICS_ADDRESS",
        "TIDINGS_COREAPP_PATIENCE_S",
        "TIDINGS_COREAPP_TIMEOUT_S",
        "TIDINGS_CRASH_AT",
        "TIDINGS_DATA_DIR",
        "TIDINGS_DB_COMMIT_DELAY_MS",
        "TIDINGS_DB_POOL_SIZE",
        "TIDINGS_DEAD_CALLBACKS_DAYS",
        "TIDINGS_DROP_KEYS",
        "TIDINGS_EMBEDDED",
        "TIDINGS_HANDSET_DB_URL",
        "TIDINGS_HANDSET_FILES",
        "TIDINGS_HANDSET_NAME",
        "TIDINGS_HEARTBEAT_SECONDS",
        "TIDINGS_HTTP_STRANGERS",
        "TIDINGS_HTTP_STRANGERS_EACH",
        "TIDINGS_HTTP_STRANGERS_RATE",
        "TIDINGS_HTTP_STRANGERS_RATE_EACH",
        "TIDINGS_INVALID_CONTACTS_S",
        "TIDINGS_INVITE_URL",
        "TIDINGS_JOB_QUEUE_LIMIT",
        "TIDINGS_LEASE_SECONDS",
        "TIDINGS_LOG_LEVEL",
        "TIDINGS_LOG_STYLE",
        "TIDINGS_MAX_BODY_BYTES",
        "TIDINGS_MAX_REQUESTS",
        "TIDINGS_MAX_UPLOADS",
        "TIDINGS_MEDIA_DAYS",
        "TIDINGS_MEDIA_DIR",
        "TIDINGS_MEDIA_LINK_CACHE_S",
        "TIDINGS_MEDIA_LINK_TIMEOUT_S",
        "TIDINGS_MEDIA_RESERVE_MB",
        "TIDINGS_MEDIA_TRANSFERS",
        "TIDINGS_MESSAGES_BURST",
        "TIDINGS_MESSAGES_RATE",
        "TIDINGS_NETWORK_BLOB_BURST",
        "TIDINGS_NETWORK_BLOB_DEVICE_QUOTA_MB",
        "TIDINGS_NETWORK_BLOB_DIR",
        "TIDINGS_NETWORK_BLOB_QUOTA_MB",
        "TIDINGS_NETWORK_BLOB_RATE",
        "TIDINGS_NETWORK_BLOB_TTL_S",
        "TIDINGS_NETWORK_BUSINESS_NUMBERS",
        "TIDINGS_NETWORK_CA",
        "TIDINGS_NETWORK_CHECK_BURST",
        "TIDINGS_NETWORK_CHECK_RATE",
        "TIDINGS_NETWORK_CONNECTIONS",
        "TIDINGS_NETWORK_DB_URL",
        "TIDINGS_NETWORK_DELAY_MS",
        "TIDINGS_NETWORK_DRAIN_S",
        "TIDINGS_NETWORK_EXPIRY_INTERVAL_S",
        "TIDINGS_NETWORK_FETCH_BURST",
        "TIDINGS_NETWORK_FETCH_RATE",
        "TIDINGS_NETWORK_GROUP_BURST",
        "TIDINGS_NETWORK_GROUP_RATE",
        "TIDINGS_NETWORK_HELD",
        "TIDINGS_NETWORK_HTTP_ADDRESS",
        "TIDINGS_NETWORK_HTTP_CERTIFICATE",
        "TIDINGS_NETWORK_HTTP_CONNECTIONS",
        "TIDINGS_NETWORK_HTTP_KEY",
        "TIDINGS_NETWORK_HTTP_URL",
        "TIDINGS_NETWORK_IDLE_S",
        "TIDINGS_NETWORK_MAILBOX_ENVELOPES",
        "TIDINGS_NETWORK_MAILBOX_MB",
        "TIDINGS_NETWORK_MAILBOX_SHARE_ENVELOPES",
        "TIDINGS_NETWORK_MAILBOX_SHARE_MB",
        "TIDINGS_NETWORK_MESSAGE_TTL_S",
        "TIDINGS_NETWORK_NODE",
        "TIDINGS_NETWORK_NODE_ADDRESS",
        "TIDINGS_NETWORK_NODE_SILENCE_S",
        "TIDINGS_NETWORK_ONE_TIME_KEYS",
        "TIDINGS_NETWORK_PAIR_BURST",
        "TIDINGS_NETWORK_PAIR_RATE",
        "TIDINGS_NETWORK_REUSE_PORT",
        "TIDINGS_NETWORK_STORED_KB_PER_S",
        "TIDINGS_NETWORK_STORED_MB",
        "TIDINGS_NETWORK_STORE_AFTER_MS",
        "TIDINGS_NETWORK_STRANGERS",
        "TIDINGS_NETWORK_STRANGERS_EACH",
        "TIDINGS_NETWORK_TCP_ADDRESS",
        "TIDINGS_NETWORK_TCP_CERTIFICATE",
        "TIDINGS_NETWORK_TCP_KEY",
        "TIDINGS_NETWORK_TCP_TLS",
        "TIDINGS_NETWORK_TRANSFERS",
        "TIDINGS_NETWORK_UNDECIDED",
        "TIDINGS_NETWORK_UNDECIDED_MB",
        "TIDINGS_NETWORK_WINDOW",
        "TIDINGS_NETWORK_WORKERS",
        "TIDINGS_NETWORK_WORKER_PORT",
        "TIDINGS_NETWORK_WRITE_BUFFER_MB",
        "TIDINGS_NEW_KEYS",
        "TIDINGS_OUTGOING_ALLOW",
        "TIDINGS_OUTGOING_ALLOW_MEDIA",
        "TIDINGS_OUTGOING_ALLOW_WEBHOOKS",
        "TIDINGS_OUTGOING_PROXY",
        "TIDINGS_PROFILE",
        "TIDINGS_REDIS_PREFIX",
        "TIDINGS_REDIS_SSL_CA",
        "TIDINGS_REDIS_URL",
        "TIDINGS_REENGAGEMENT_WINDOW",
        "TIDINGS_REQUIRE_PQ",
        "TIDINGS_ROBOTS_BLOCK",
        "TIDINGS_ROBOTS_COMMIT_MS",
        "TIDINGS_ROBOTS_CONNECTIONS",
        "TIDINGS_ROBOTS_KINDS",
        "TIDINGS_ROBOTS_LOG",
        "TIDINGS_ROBOTS_LOG_MB",
        "TIDINGS_ROBOTS_PER_KIND",
        "TIDINGS_ROBOTS_PREFIXES",
        "TIDINGS_ROBOTS_PREKEYS",
        "TIDINGS_SHARDS",
        "TIDINGS_STATUS_DELAY_MS",
        "TIDINGS_STRICT_ENV",
        "TIDINGS_TAP",
        "TIDINGS_TLS_CA",
        "TIDINGS_TLS_CERTIFICATE",
        "TIDINGS_TLS_KEY",
        "TIDINGS_TRAFFIC_PASSWORD",
        "TIDINGS_TRUSTED_PROXIES",
        "TIDINGS_UNREAD_DAYS",
        "TIDINGS_WEBHOOK_ANY_2XX",
        "TIDINGS_WEBHOOK_TIMEOUT_S",
        "TIDINGS_WITHOUT_WEBHOOK",
        "WA_DB_ENGINE",
        "WA_DB_HOSTNAME",
        "WA_DB_NAME_PREFIX",
        "WA_DB_PORT",
        "WA_DB_SSL_CA",
        "WA_DB_SSL_CERT",
        "WA_DB_SSL_KEY",
        "WA_DB_USERNAME",
        "WA_WEB_SERVERNAME",
    }
)

# Secrets: each also with the suffix _FILE, the master key with _COMMAND, too.
SECRETS = frozenset(
    {
        "TIDINGS_ADMIN_PASSWORD",
        "TIDINGS_HANDSET_KEY",
        "TIDINGS_LINK_KEY",
        "TIDINGS_MASTER_KEY",
        "TIDINGS_REDIS_PASSWORD",
        "TIDINGS_REGISTRATION_KEY",
        "TIDINGS_SETTINGS_KEY",
        "TIDINGS_WEBHOOK_SECRET",
        "WA_API_KEY",
        "WA_DB_PASSWORD",
        "WA_WEB_JWT_CRYPTO_KEY",
    }
)

# Read by the Compose files alone.
COMPOSE = frozenset(
    {
        "TIDINGS_API_PORT",
        "TIDINGS_DATABASE_IMAGE",
        "TIDINGS_GRAFANA_IMAGE",
        "TIDINGS_GRAFANA_PORT",
        "TIDINGS_IMAGE",
        "TIDINGS_NETWORK_HTTP_PORT",
        "TIDINGS_NETWORK_NAMES",
        "TIDINGS_NETWORK_TCP_PORT",
        "TIDINGS_PROMETHEUS_IMAGE",
        "TIDINGS_PROMETHEUS_PORT",
        "TIDINGS_PROXY_CONNECTIONS_EACH",
        "TIDINGS_PROXY_IMAGE",
        "TIDINGS_REDIS_IMAGE",
        "TIDINGS_SUBNET",
        "WA_PROMETHEUS_STORAGE_TSDB_RETENTION",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadVariable:
    """A variable of the environment that no process reads."""

    name: str
    nearest: str  # the most similar known name; empty when none is similar

    def __str__(self) -> str:
        return f"{self.name} is read by nothing" + (f" (did you mean {self.nearest}?)" if self.nearest else "")


def find(variables: Mapping[str, str]) -> Sequence[UnreadVariable]:
    """Return the set variables with a prefix of Tidings that nothing reads, sorted by name."""
    known = _known()
    unread = sorted(name for name in variables if name.startswith(PREFIXES) and name not in known)
    return [UnreadVariable(name, _nearest(name, known)) for name in unread]


def report(variables: Mapping[str, str]) -> None:
    """Log a warning per unread variable. Raises `SettingsError` with all of them when `TIDINGS_STRICT_ENV` is on."""
    unread = find(variables)
    if unread and is_strict(variables):
        raise SettingsError("; ".join(map(str, unread)) + f"; correct or unset them, or unset {STRICT}")
    for variable in unread:
        log.warning("environment.unread", extra={"variable": variable.name, "nearest": variable.nearest})


def is_strict(variables: Mapping[str, str]) -> bool:
    """Whether a process refuses to start with a variable that nothing reads."""
    try:
        return parse_flag(variables.get(STRICT) or "0")
    except ValueError as error:
        raise SettingsError(f"{STRICT}={variables[STRICT]!r} {error}") from None


def _known() -> frozenset[str]:
    files = {name + secret_sources.FILE for name in SECRETS}
    return SETTINGS | SECRETS | COMPOSE | files | {"TIDINGS_MASTER_KEY" + secret_sources.COMMAND}


def _nearest(name: str, known: frozenset[str]) -> str:
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else ""
