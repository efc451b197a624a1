"""What a Coreapp is told by its environment."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from pathlib import Path

from coreapp import signature
from coreapp.conversations import Names
from tidings.egress import settings as outgoing
from tidings.egress.settings import OutgoingSettings
from tidings.runtime import settings
from tidings.runtime.settings import DatabaseSettings, Environment, Secrets

_INVITE_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """One Coreapp process.

    account:             the business's number, digits.
    link_address:        where Webapps reach it; advertised_host: what the shard map tells them.
    network_tcp, network_http: the message network.
    lease_seconds:       silence after which another Coreapp may take a shard; heartbeat_seconds: between signs of life.
    job_queue_limit, callback_queue_limit: rows.
    refuses_unheard:     messages are refused at the limit of the callback queue without a webhook URL, too, rather than
                         statuses dropped.
    status_delay:        seconds after the answer to a message before which none of its statuses is posted.
    webhook_timeout:     seconds for one attempt.
    auto_register:       register the number with the registration key at the first start; otherwise wait for a code.
    reengagement_window: fail free-form messages to those who did not write within 24 hours.
    check_unknown:       a recipient who was not checked is checked when the first message to them comes.
    blocked_is_sent:     a message to somebody who has blocked the business stays `sent` rather than fails.
    unregistered_seconds: how long it is believed that a number is not on the network.
    conversations:       what the conversations in statuses are named after.
    accept_any_2xx:      take every 2xx of a webhook for success, not only 200.
    allow_pq_downgrade:  go on with recipients whose keys had post-quantum protection and have none any more.
    outgoing:            where webhooks and media links may lead.
    media_dir:           of files, the same for every Webapp and Coreapp; media_reserve: bytes that stay free there.
    media_transfers:     uploads to the network, and downloads from it, at the same time.
    media_days, unread_days, dead_callback_days: that unused files, unread messages and dead letters are kept; 0 is for
                         ever.
    media_link_timeout:  seconds for one link; media_link_cache: seconds that what was fetched serves other messages.
    invite_url:          what stands before the code in the invitation to a group. Devices need the code alone, so the
                         default leads nowhere.
    """

    data_dir: Path
    database: DatabaseSettings
    secrets: Secrets
    webhook_key: bytes = dataclasses.field(repr=False)
    embedded: bool
    node: str
    account: str
    link_address: tuple[str, int]
    advertised_host: str
    metrics_address: tuple[str, int]
    network_tcp: tuple[str, int]
    network_http: str
    shards: int
    lease_seconds: float
    heartbeat_seconds: float
    job_queue_limit: int
    callback_queue_limit: int
    webhook_timeout: float
    accept_any_2xx: bool
    require_pq: bool
    media_dir: Path
    reengagement_window: bool = False
    blocked_is_sent: bool = False
    allow_pq_downgrade: bool = False
    check_unknown: bool = True
    unregistered_seconds: float = 300.0
    conversations: Names = Names.CATEGORY
    refuses_unheard: bool = False
    status_delay: float = 1.0
    auto_register: bool = True
    outgoing: OutgoingSettings = outgoing.ONLY_PUBLIC
    media_reserve: int = 0
    media_transfers: int = 4
    media_days: int = 90
    unread_days: int = 30
    dead_callback_days: int = 30
    media_link_timeout: float = 60.0
    media_link_cache: float = 600.0
    invite_url: str = "https://join.tidings.invalid"


def read(env: Environment) -> Settings:
    """Read and check everything. Raises `SettingsError`."""
    data_dir = settings.data_dir(env)
    env.check()
    secrets = settings.read_secrets(env, data_dir)
    webhook_key = b""
    try:
        webhook_key = signature.secret_bytes(secrets.webhook_secret)
    except ValueError as error:
        env.problem(f"TIDINGS_WEBHOOK_SECRET: {error}")
    invite_url = env.text("TIDINGS_INVITE_URL", "https://join.tidings.invalid")
    if not _INVITE_URL.fullmatch(invite_url):
        env.problem(f"TIDINGS_INVITE_URL={invite_url!r} is no http(s) address without ? and #")
    link_address = env.address("TIDINGS_COREAPP_ADDRESS", "127.0.0.1:6252")
    lease = env.number("TIDINGS_LEASE_SECONDS", 30.0, low=1.0, high=3600.0)
    result = Settings(
        data_dir=data_dir,
        database=settings.read_database(env, data_dir, "business"),
        secrets=secrets,
        webhook_key=webhook_key,
        embedded=env.flag("TIDINGS_EMBEDDED"),
        node=env.text("COREAPP_HOSTNAME", f"{socket.gethostname()}:{os.getpid()}")[:64],
        account=settings.business_number(env),
        link_address=link_address,
        advertised_host=env.text("TIDINGS_COREAPP_ADVERTISED_HOST", link_address[0]),
        metrics_address=env.address("TIDINGS_COREAPP_METRICS_ADDRESS", "127.0.0.1:6253"),
        network_tcp=env.address("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096"),
        network_http=env.text("TIDINGS_NETWORK_HTTP_URL", "http://127.0.0.1:9095"),
        shards=1,
        lease_seconds=lease,
        heartbeat_seconds=env.number("TIDINGS_HEARTBEAT_SECONDS", min(5.0, lease / 6), low=0.05, high=600.0),
        job_queue_limit=env.integer("TIDINGS_JOB_QUEUE_LIMIT", 20_000, low=1),
        callback_queue_limit=env.integer("TIDINGS_CALLBACK_QUEUE_LIMIT", 100_000, low=1),
        webhook_timeout=env.number("TIDINGS_WEBHOOK_TIMEOUT_S", 15.0, low=0.1, high=600.0),
        accept_any_2xx=env.flag("TIDINGS_WEBHOOK_ANY_2XX"),
        require_pq=env.flag("TIDINGS_REQUIRE_PQ"),
        allow_pq_downgrade=env.flag("TIDINGS_ALLOW_PQ_DOWNGRADE"),
        media_dir=Path(env.text("TIDINGS_MEDIA_DIR", str(data_dir / "media"))).expanduser().absolute(),
        reengagement_window=env.flag("TIDINGS_REENGAGEMENT_WINDOW", default=not env.flag("TIDINGS_EMBEDDED")),
        blocked_is_sent=env.choice("TIDINGS_BLOCKED_STATUS", "failed", ("failed", "sent")) == "sent",
        check_unknown=env.flag("TIDINGS_CHECK_UNKNOWN_CONTACTS", default=True),
        unregistered_seconds=env.number("TIDINGS_INVALID_CONTACTS_S", 300.0, low=0.0, high=604_800.0),
        conversations=Names(
            env.choice("TIDINGS_CONVERSATION_TYPES", Names.CATEGORY.value, tuple(name.value for name in Names))
        ),
        refuses_unheard=env.choice("TIDINGS_WITHOUT_WEBHOOK", "drop", ("drop", "refuse")) == "refuse",
        status_delay=env.integer("TIDINGS_STATUS_DELAY_MS", 1000, high=60_000) / 1000,
        auto_register=env.flag("TIDINGS_AUTO_REGISTER", default=True),
        outgoing=outgoing.read(env, loopback=env.flag("TIDINGS_EMBEDDED")),
        media_reserve=env.integer("TIDINGS_MEDIA_RESERVE_MB", 100, low=0) * 1024 * 1024,
        media_transfers=env.integer("TIDINGS_MEDIA_TRANSFERS", 4, low=1, high=64),
        media_days=env.integer("TIDINGS_MEDIA_DAYS", 90, high=36_500),
        unread_days=env.integer("TIDINGS_UNREAD_DAYS", 30, low=1, high=36_500),
        dead_callback_days=env.integer("TIDINGS_DEAD_CALLBACKS_DAYS", 30, high=36_500),
        media_link_timeout=env.number("TIDINGS_MEDIA_LINK_TIMEOUT_S", 60.0, low=0.1, high=600.0),
        media_link_cache=env.number("TIDINGS_MEDIA_LINK_CACHE_S", 600.0, low=0.0, high=86_400.0),
        invite_url=invite_url,
    )
    if result.heartbeat_seconds >= result.lease_seconds:
        env.problem("TIDINGS_HEARTBEAT_SECONDS must be below TIDINGS_LEASE_SECONDS")
    env.check()
    return result
