"""Settings of a Coreapp, from the environment."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic

from coreapp import signature
from coreapp.conversations import ConversationNames
from tidings.config import env
from tidings.egress.settings import OutgoingMedia, OutgoingWebhooks
from tidings.installation import network_access, settings
from tidings.installation.settings import DatabaseSettings
from tidings.net import exposure
from tidings.objects.s3_settings import MediaBucket
from tidings.secrets import process_secrets
from tidings.secrets.api_key import API_KEY, OptionalKey
from tidings.secrets.process_secrets import CoreappSecrets
from tidings.testing import switch
from tidings.wire.addresses import COUNTS
from tidings.wire.cloud.tiers import TIERS, UNLIMITED

NEVER = "never"
MAX_RISE = 604_800.0  # seconds
_INVITE_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")


def _invite_url(url: str) -> str:
    if not _INVITE_URL.fullmatch(url):
        raise env.wrong("is not an http(s) URL without ? and #")
    return url


def _is(word: str, other: str) -> Any:
    """Return a parser that yields true for `word` and false for `other`."""
    return env.text(lambda value: env.parse_choice(value, word, other) == word)


def _own_host(data: Mapping[str, Any]) -> str:
    """Return the host of the link's address, or this machine's name if the link listens on all addresses."""
    host: str = data["link_address"][0]
    try:
        is_every = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_every = False
    return socket.gethostname() if is_every else host


def _rise_seconds(value: str) -> float:
    if value.lower() == NEVER:
        return math.inf
    try:
        return env.parse_number(value, 0.0, MAX_RISE)
    except ValueError:
        raise env.wrong(f"is neither {NEVER} nor a number from 0.0 to {MAX_RISE}") from None


def _shards(value: str) -> int:
    count = int(value) if value.isascii() and value.isdigit() else 0
    if count not in COUNTS:
        raise env.wrong(f"is none of {', '.join(map(str, COUNTS))}")
    return count


def _names(value: str) -> ConversationNames:
    return ConversationNames(env.parse_choice(value, *(name.value for name in ConversationNames)))


class Settings(settings.ProcessSettings):
    """Settings of one Coreapp process."""

    database: Annotated[DatabaseSettings, settings.database("business")] = env.COMPUTED
    secrets: Annotated[CoreappSecrets, process_secrets.secrets_of(CoreappSecrets)] = env.COMPUTED
    # unique name of the process
    node: Annotated[str, env.text(lambda name: name[:64])] = env.variable(
        "COREAPP_HOSTNAME", f"{socket.gethostname()}:{os.getpid()}"
    )
    # phone number of the business, digits
    account: settings.BusinessNumber = settings.BUSINESS_NUMBER
    # address at which Webapps connect
    link_address: env.Address = env.variable("TIDINGS_COREAPP_ADDRESS", "127.0.0.1:6252")
    # host of that address in the shard map, by which Webapps call this process
    advertised_host: Annotated[str, env.computed(_own_host, env.parse_host)] = env.variable(
        "TIDINGS_COREAPP_ADVERTISED_HOST", None
    )
    metrics_address: env.Address = env.variable("TIDINGS_COREAPP_METRICS_ADDRESS", "127.0.0.1:6253")
    # key for the metrics where other machines can reach them; empty for none
    api_key: OptionalKey = API_KEY
    # TCP address of the network's device API
    network_tcp: env.Address = env.variable("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096")
    # URL of the network's HTTP API
    network_http: str = env.variable("TIDINGS_NETWORK_HTTP_URL", "http://127.0.0.1:9095")
    # whether the network's TCP side uses TLS as well
    network_tcp_tls: Annotated[bool, network_access.tcp_tls("network_http")] = network_access.TCP_TLS
    # TLS files for connections to the network
    network_files: network_access.NetworkFiles = env.COMPUTED
    # number of shards at the first start; `POST /v1/account/shards` changes it later
    shards: Annotated[int, env.text(_shards)] = env.variable("TIDINGS_SHARDS", 1)
    # seconds of silence after which another Coreapp may take over a shard
    lease_seconds: Annotated[float, env.number(1.0, 3600.0)] = env.variable("TIDINGS_LEASE_SECONDS", 30.0)
    # seconds between two heartbeats
    heartbeat_seconds: Annotated[
        float,
        env.computed(
            lambda data: min(5.0, data["lease_seconds"] / 6), lambda value: env.parse_number(value, 0.05, 600.0)
        ),
    ] = env.variable("TIDINGS_HEARTBEAT_SECONDS", None)
    # largest number of rows in the job queue
    job_queue_limit: Annotated[int, env.integer(1)] = env.variable("TIDINGS_JOB_QUEUE_LIMIT", 20_000)
    # largest number of rows in the callback queue
    callback_queue_limit: Annotated[int, env.integer(1)] = env.variable("TIDINGS_CALLBACK_QUEUE_LIMIT", 100_000)
    # timeout of one attempt at the webhook, seconds
    webhook_timeout: Annotated[float, env.number(0.1, 600.0)] = env.variable("TIDINGS_WEBHOOK_TIMEOUT_S", 15.0)
    # PEM file of certificate revocation lists; `None` for no check
    webhook_revocations: Annotated[Path | None, env.text(lambda value: env.parse_path(value) if value else None)] = (
        env.variable("TIDINGS_WEBHOOK_CRL", None)
    )
    # accept every 2xx status of a webhook as success, not only 200
    accept_any_2xx: env.Flag = env.variable("TIDINGS_WEBHOOK_ANY_2XX", False)
    # largest number of statuses in one webhook of v1, for numbers that do not set their own
    statuses_per_post: settings.StatusesPerPost = settings.STATUSES_PER_POST
    # largest number of events in one webhook of the Cloud API
    cloud_batch: Annotated[int, env.integer(1, 50)] = env.variable("TIDINGS_CLOUD_WEBHOOK_BATCH", 1)
    # messaging limit in the Cloud API of numbers without an individual one
    cloud_tier: Annotated[str, env.choice(*TIERS)] = env.variable("TIDINGS_CLOUD_MESSAGING_TIER", UNLIMITED)
    # seconds after which a messaging limit rises of which half is used within 7 days; infinite: it never rises
    cloud_tier_rise: Annotated[float, env.text(_rise_seconds)] = env.variable("TIDINGS_CLOUD_TIER_RISE_S", 6 * 3600.0)
    # name users by ids in webhooks of the Cloud API
    cloud_user_ids: env.Flag = env.variable("TIDINGS_CLOUD_BSUID", False)
    # posts in flight to the real Cloud API, per number
    cloud_concurrency: Annotated[int, env.integer(1, 1024)] = env.variable("TIDINGS_CLOUD_CONCURRENCY", 256)
    # keep to the pair rate of the real Cloud API: one message in 6 seconds to a recipient, after a burst of 45
    cloud_pair_pacing: env.Flag = env.variable("TIDINGS_CLOUD_PAIR_PACING", True)
    # seconds that a message whose post had no clear outcome waits for a status
    cloud_unknown_wait: Annotated[float, env.number(0.0, 86_400.0)] = env.variable("TIDINGS_CLOUD_UNKNOWN_WAIT_S", 60.0)
    # post such a message again after that time instead of failing it
    cloud_resends_unknown: Annotated[bool, _is("resend", "fail")] = env.variable("TIDINGS_CLOUD_UNKNOWN_OUTCOME", False)
    # first digits of numbers that stand for users whose number the real Cloud API does not show
    cloud_standin: Annotated[int, env.integer(100, 999_999)] = env.variable("TIDINGS_CLOUD_STANDIN", 999)
    # start sessions only with recipients whose keys have post-quantum protection
    require_pq: env.Flag = env.variable("TIDINGS_REQUIRE_PQ", False)
    # continue with recipients whose keys had post-quantum protection and no longer have it
    allow_pq_downgrade: env.Flag = env.variable("TIDINGS_ALLOW_PQ_DOWNGRADE", False)
    # directory of files, the same for every Webapp and Coreapp
    media_dir: Annotated[Path, settings.below_data_dir("media")] = env.variable("TIDINGS_MEDIA_DIR", None)
    # bucket of files, the same for all processes; `media_dir` then holds only files in transfer
    media_bucket: MediaBucket = env.COMPUTED
    # fail free-form messages to recipients who did not write within 24 hours
    reengagement_window: env.Flag = env.variable("TIDINGS_REENGAGEMENT_WINDOW", True)
    # leave a message to a recipient who has blocked the business at `sent` instead of failing it
    blocked_is_sent: Annotated[bool, _is("sent", "failed")] = env.variable("TIDINGS_BLOCKED_STATUS", False)
    # check a recipient who was not checked when the first message to them arrives
    check_unknown: env.Flag = env.variable("TIDINGS_CHECK_UNKNOWN_CONTACTS", True)
    # seconds for which a number that is not on the network is remembered as such
    unregistered_seconds: Annotated[float, env.number(0.0, 604_800.0)] = env.variable(
        "TIDINGS_INVALID_CONTACTS_S", 300.0
    )
    # scheme that names the conversations in statuses
    conversations: Annotated[ConversationNames, env.text(_names)] = env.variable(
        "TIDINGS_CONVERSATION_TYPES", ConversationNames.CATEGORY
    )
    # refuse messages at the limit of the callback queue also while no webhook URL is set, instead of dropping statuses
    refuses_without_webhook: Annotated[bool, _is("refuse", "drop")] = env.variable("TIDINGS_WITHOUT_WEBHOOK", False)
    # seconds after the response to a message before which none of its statuses is posted
    status_delay: Annotated[float, env.integer(high=60_000, unit=0.001)] = env.variable("TIDINGS_STATUS_DELAY_MS", 1.0)
    # register the number with the registration key at the first start; otherwise wait for a registration code
    auto_register: env.Flag = env.variable("TIDINGS_AUTO_REGISTER", True)
    # destinations that webhook posts may reach
    outgoing_webhooks: OutgoingWebhooks = env.COMPUTED
    # destinations that media links may reach
    outgoing_media: OutgoingMedia = env.COMPUTED
    # bytes that stay free on the disk of `media_dir`
    media_reserve: Annotated[int, env.integer(unit=env.MIB)] = env.variable("TIDINGS_MEDIA_RESERVE_MB", "100")
    # concurrent uploads to the network, and concurrent downloads from it
    media_transfers: Annotated[int, env.integer(1, 64)] = env.variable("TIDINGS_MEDIA_TRANSFERS", 16)
    # days that unused files are kept; 0 keeps them forever
    media_days: Annotated[int, env.integer(high=36_500)] = env.variable("TIDINGS_MEDIA_DAYS", 90)
    # days that marks of unread messages are kept
    unread_days: Annotated[int, env.integer(1, 36_500)] = env.variable("TIDINGS_UNREAD_DAYS", 30)
    # days that dead letters are kept; 0 keeps them forever
    dead_callback_days: Annotated[int, env.integer(high=36_500)] = env.variable("TIDINGS_DEAD_CALLBACKS_DAYS", 30)
    # hours for which ended callbacks, their attempts and the times of messages are kept; 0 keeps none
    history_hours: Annotated[int, env.integer(high=8_784)] = env.variable("TIDINGS_HISTORY_HOURS", 24)
    # timeout of one link, seconds
    media_link_timeout: Annotated[float, env.number(0.1, 600.0)] = env.variable("TIDINGS_MEDIA_LINK_TIMEOUT_S", 60.0)
    # seconds for which a fetched file serves other messages
    media_link_cache: Annotated[float, env.number(0.0, 86_400.0)] = env.variable("TIDINGS_MEDIA_LINK_CACHE_S", 600.0)
    # part of a group's invitation link before the code. Devices need only the code, so the default leads nowhere
    invite_url: Annotated[str, env.text(_invite_url)] = env.variable(
        "TIDINGS_INVITE_URL", "https://join.tidings.invalid"
    )

    # let recipients' numbers and faults make messages and webhooks fail
    testing: env.Flag = switch.TESTING

    @property
    def keeps_history(self) -> bool:
        """Return whether ended callbacks, their attempts and the times of messages are kept."""
        return self.history_hours > 0

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the connections whose exposure without TLS is checked at the start: link, metrics and network."""
        secured, variable = bool(self.tls_files.chain), "TIDINGS_COREAPP_METRICS_ADDRESS"
        return (
            exposure.Endpoint(exposure.LINK, "TIDINGS_COREAPP_ADDRESS", self.link_address[0], secured, exposure.OWN),
            exposure.metrics_endpoint(variable, self.metrics_address[0], self.plaintext),
            *self.network_ways(),
        )

    def network_ways(self) -> Sequence[exposure.Endpoint]:
        """Return the network's HTTP and TCP connections, whose exposure without TLS is checked at the start."""
        return (
            network_access.http_endpoint(self.network_http),
            network_access.tcp_endpoint(self.network_tcp[0], secured=self.network_tcp_tls),
        )

    @pydantic.model_validator(mode="after")
    def _can_sign(self) -> Settings:
        try:
            signature.secret_bytes(self.secrets.webhook_secret)
        except ValueError as error:
            raise env.mistake(f"TIDINGS_WEBHOOK_SECRET: {error}") from None
        return self

    @pydantic.model_validator(mode="after")
    def _tests_on_loopback(self) -> Settings:
        if self.testing:
            switch.require_loopback("TIDINGS_COREAPP_ADDRESS", self.link_address[0])
        return self

    @pydantic.model_validator(mode="after")
    def _beats_before_the_lease_ends(self) -> Settings:
        if self.heartbeat_seconds >= self.lease_seconds:
            raise env.mistake("TIDINGS_HEARTBEAT_SECONDS must be below TIDINGS_LEASE_SECONDS")
        return self
