"""Settings of a Webapp, read from the environment."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic

from tidings.config import env, host_names
from tidings.egress.settings import OutgoingWebhooks
from tidings.http import listener_settings
from tidings.installation import settings
from tidings.installation.settings import DatabaseSettings
from tidings.net import exposure
from tidings.objects.s3_settings import MediaBucket
from tidings.secrets import first_password, process_secrets
from tidings.secrets.api_key import API_KEY, OptionalConsoleKey, OptionalKey, OptionalLinkKey
from tidings.secrets.first_password import FirstPassword
from tidings.secrets.process_secrets import WebappSecrets
from tidings.testing import switch
from tidings.wire import addresses
from tidings.wire.cloud.tiers import TIERS, UNLIMITED
from webapp.auth import password_rule

COREAPP_PORT = 6252
# Value of a review that only the operator ends, and the longest one that ends by itself: 30 days.
BY_HAND, MAX_REVIEW_MS = "never", 30 * 24 * 3600 * 1000


def _coreapp(raw: str) -> tuple[str, int]:
    # Several colons without brackets are an IPv6 address without a port.
    with_port = raw.rpartition(":")[2].isdigit() and (raw.count(":") == 1 or "]:" in raw)
    if with_port:
        return env.parse_address(raw)
    host = raw.strip("[]")
    if not host_names.is_host(host):
        raise env.wrong("is not host or host:port")
    return host, COREAPP_PORT


def _burst(rate: str) -> Any:
    return env.computed(lambda data: max(data[rate], 1.0), lambda value: env.parse_number(value, 1.0))


def _first_password(data: Mapping[str, Any]) -> FirstPassword:
    given = first_password.read(data["variables"])
    weakness = password_rule.weakness(given) if given else None
    if weakness:
        raise env.mistake(f"{first_password.VARIABLE} {weakness}")
    return FirstPassword(given, env.is_loopback(data["address"][0]))


def _number_hosts(value: str) -> Mapping[str, str]:
    """Parse `host=number` pairs separated by commas. Raises `env.mistake`."""
    found: dict[str, str] = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        host, _, number = (part.strip() for part in pair.partition("="))
        host, number = host.lower().rstrip("."), number.removeprefix("+")
        if not host_names.is_host(host) or ":" in host:
            raise env.wrong(f"has {pair!r}, whose host {host!r} is no host name (without a port)")
        if not number:
            raise env.wrong(f"has the host {host!r} without a number: write {host}=NUMBER")
        if not addresses.is_number(number):
            raise env.wrong(f"has {pair!r}, whose number is not one of 7 to 15 digits")
        if host in found:
            raise env.wrong(f"names the host {host!r} twice")
        found[host] = number
    return found


def _needs_tls(data: Mapping[str, Any]) -> bool:
    return not env.is_loopback(data["address"][0])


def _tls_names(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names by which clients may call the API.

    They are the configured names, this machine's names, and the listening address.
    """
    variables, host = data["variables"], data["address"][0]
    names, wrong = [], []
    for variable in ("WA_WEB_SERVERNAME", "TIDINGS_API_TLS_NAMES"):
        for part in filter(None, map(str.strip, variables.get(variable, "").split(","))):
            names.append(part.strip("[]").removesuffix("."))
            if not host_names.is_host(names[-1], wildcard=True):
                wrong.append(
                    f"{part!r} in {variable} is not a host name or address: write api.example.com or 10.0.0.5, with "
                    "commas between several"
                )
    if wrong:
        raise env.mistake("; ".join(wrong))
    own = socket.gethostname()
    here = [own] if host_names.is_host(own) else []
    bound = [] if host in ("0.0.0.0", "::", "") else [host]  # noqa: S104
    return tuple(dict.fromkeys((*names, *data["number_hosts"], *here, "localhost", "127.0.0.1", "::1", *bound)))


def _secrets(data: Mapping[str, Any]) -> WebappSecrets:
    found = process_secrets.read(WebappSecrets, data["variables"], data["data_dir"])
    if len(found.jwt_key) < 16:
        raise env.mistake("WA_WEB_JWT_CRYPTO_KEY is shorter than 16 characters")
    return found


def _throttle_status(raw: str) -> int:
    return int(env.parse_choice(raw, "400", "429"))


def _review_ms(raw: str) -> float | None:
    if not raw:
        return None
    if raw.lower() == BY_HAND:
        return math.inf
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 10 and int(raw) <= MAX_REVIEW_MS):
        raise env.wrong(f"is neither {BY_HAND} nor a whole number from 0 to {MAX_REVIEW_MS}")
    return float(raw)


class Settings(settings.ProcessSettings):
    """Settings of a Webapp. `/v1/support` reports the free space of `data_dir`."""

    # where the API listens; port 0 selects a free port
    address: env.Address = env.variable("TIDINGS_API_ADDRESS", "127.0.0.1:9090")
    node: str = env.variable("WEBAPP_HOSTNAME", socket.gethostname())  # node name for operators; the port is appended
    account: settings.BusinessNumber = settings.BUSINESS_NUMBER  # business number that this installation sends from
    database: Annotated[DatabaseSettings, settings.database("business")] = env.COMPUTED
    secrets: Annotated[WebappSecrets, env.computed(_secrets)] = env.COMPUTED
    api_key: OptionalKey = API_KEY  # grants access to health and metrics in addition to tokens; empty for none
    # requests per second; 0 for no limit
    messages_rate: Annotated[float, env.number()] = env.variable("TIDINGS_MESSAGES_RATE", 80.0)
    # requests at once
    messages_burst: Annotated[float, _burst("messages_rate")] = env.variable("TIDINGS_MESSAGES_BURST", None)
    # requests per second; 0 for no limit
    contacts_rate: Annotated[float, env.number()] = env.variable("TIDINGS_CONTACTS_RATE", 40.0)
    # requests at once
    contacts_burst: Annotated[float, _burst("contacts_rate")] = env.variable("TIDINGS_CONTACTS_BURST", None)
    # fixed address of the only Coreapp; `None` to read addresses from the database
    coreapp: Annotated[tuple[str, int] | None, env.text(_coreapp)] = env.variable("WACORE_HOSTNAME", None)
    # seconds that a request waits for an unavailable Coreapp
    owner_timeout: Annotated[float, env.number(high=3600)] = env.variable("TIDINGS_COREAPP_PATIENCE_S", 4.5)
    # seconds that a call to a Coreapp may take
    coreapp_timeout: Annotated[float, env.number(0.1, 3600)] = env.variable("TIDINGS_COREAPP_TIMEOUT_S", 30.0)
    # bytes of a JSON body
    max_body: Annotated[int, env.integer(1024, 3 * env.MIB)] = env.variable("TIDINGS_MAX_BODY_BYTES", env.MIB)
    # requests in progress at the same time
    max_requests: Annotated[int, env.integer(1)] = env.variable("TIDINGS_MAX_REQUESTS", 10_000)
    # open at the same time; `unauthenticated` limits the unauthenticated ones among them
    connections: Annotated[int, env.integer(1)] = env.variable("TIDINGS_API_CONNECTIONS", 10_000)
    unauthenticated: listener_settings.UnauthenticatedLimits = env.COMPUTED
    # networks of proxies whose forwarding headers are trusted
    trusted_proxies: listener_settings.TrustedProxies = listener_settings.TRUSTED_PROXIES
    # names allowed in `Host`; empty for any
    http_hosts: listener_settings.HttpHosts = listener_settings.HTTP_HOSTS
    # number by host name, at which login takes bare user names and only tokens of that number are accepted
    number_hosts: Annotated[Mapping[str, str], env.text(_number_hosts)] = env.variable("TIDINGS_NUMBER_HOSTS", "")
    # serve HTTPS
    tls: Annotated[bool, env.computed(_needs_tls, env.parse_flag)] = env.variable("TIDINGS_API_TLS", None)
    # host names and addresses in a generated certificate
    tls_names: Annotated[tuple[str, ...], env.computed(_tls_names)] = env.COMPUTED
    # first password of the administrator
    first_password: Annotated[FirstPassword, env.computed(_first_password)] = env.HIDDEN
    outgoing_webhooks: OutgoingWebhooks = env.COMPUTED  # limits on the targets of webhooks
    # largest number of statuses in one webhook of v1, shown for numbers that do not set their own
    statuses_per_post: settings.StatusesPerPost = settings.STATUSES_PER_POST
    # directory of files, the same for every Webapp and Coreapp
    media_dir: Annotated[Path, settings.below_data_dir("media")] = env.variable("TIDINGS_MEDIA_DIR", None)
    media_bucket: MediaBucket = env.COMPUTED  # bucket of files instead of the directory, the same for all
    # bytes that stay free in the directory
    media_reserve: Annotated[int, env.integer(unit=env.MIB)] = env.variable("TIDINGS_MEDIA_RESERVE_MB", "100")
    # uploads of files in progress at the same time
    max_uploads: Annotated[int, env.integer(1, 1000)] = env.variable("TIDINGS_MAX_UPLOADS", 16)
    # serve the Cloud API and v1
    cloud_api: env.Flag = env.variable("TIDINGS_CLOUD_API", False)
    # accept any access token in the Cloud API; only on loopback
    cloud_open: env.Flag = env.variable("TIDINGS_CLOUD_OPEN", False)
    # HTTP status of a rate limit in the Cloud API
    cloud_throttle_status: Annotated[int, env.text(_throttle_status)] = env.variable(
        "TIDINGS_CLOUD_THROTTLE_STATUS", 400
    )
    # milliseconds until a created or edited template is approved, infinite for an approval by the operator only; `None`
    # for one without a review
    template_review_ms: Annotated[float | None, env.text(_review_ms)] = env.variable("TIDINGS_TEMPLATE_REVIEW_MS", "")
    # limit the messages of the Cloud API to one recipient
    cloud_pair_limit: env.Flag = env.variable("TIDINGS_CLOUD_PAIR_LIMIT", False)
    # accept users' ids in messages of the Cloud API
    cloud_user_ids: env.Flag = env.variable("TIDINGS_CLOUD_BSUID", False)
    # first digits of numbers that stand for users whose number the real Cloud API does not show
    cloud_standin: Annotated[int, env.integer(100, 999_999)] = env.variable("TIDINGS_CLOUD_STANDIN", 999)
    # limit the management calls of the Cloud API
    cloud_management_limit: env.Flag = env.variable("TIDINGS_CLOUD_MANAGEMENT_LIMIT", False)
    # messaging limit in the Cloud API of numbers without an individual one
    cloud_tier: Annotated[str, env.choice(*TIERS)] = env.variable("TIDINGS_CLOUD_MESSAGING_TIER", UNLIMITED)
    # serve `/tidings/`, by which tests act as recipients and request failures; only on loopback
    testing: env.Flag = switch.TESTING
    # serve `/console`
    console: env.Flag = env.variable("TIDINGS_CONSOLE", False)
    console_key: OptionalConsoleKey = API_KEY  # operator key for the console; empty: it only reads
    console_link: OptionalLinkKey = API_KEY  # key of the link that opens the console once; empty for none
    # Socket of a listener for copies of requests, which `tidings traffic` creates; `None` for none.
    tap: Annotated[Path | None, env.text(lambda value: env.parse_path(value) if value else None)] = env.variable(
        "TIDINGS_TAP", None
    )

    @pydantic.model_validator(mode="after")
    def _opens_only_loopback(self) -> Settings:
        if self.cloud_open and not env.is_loopback(self.address[0]):
            raise env.mistake(
                f"TIDINGS_CLOUD_OPEN=1 needs TIDINGS_API_ADDRESS on loopback (got {self.address[0]}): it lets every "
                "client send messages"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _console_is_safe(self) -> Settings:
        if self.console and not env.is_loopback(self.address[0]) and not (self.tls and self.allowed_hosts):
            raise env.mistake(
                "TIDINGS_CONSOLE=1 beyond loopback needs TIDINGS_API_TLS=1 and TIDINGS_HTTP_HOSTS: passwords are typed "
                "there, and other sites must not reach it under their names"
            )
        return self

    @property
    def media_disk(self) -> Path:
        """Return a directory on the disk that uploads fill. With a bucket they fill none."""
        return self.data_dir if self.media_bucket else self.media_dir

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Names allowed in `Host`, those that stand for a number among them; empty for any."""
        return self.http_hosts | self.number_hosts.keys() if self.http_hosts else frozenset()

    @pydantic.model_validator(mode="after")
    def _tests_on_loopback(self) -> Settings:
        if self.testing:
            switch.require_loopback("TIDINGS_API_ADDRESS", self.address[0])
        return self

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the API's listener, and the link to the only Coreapp if its address is set."""
        api = exposure.Endpoint("api", "TIDINGS_API_ADDRESS", self.address[0], self.tls, "TIDINGS_API_TLS=1")
        if self.coreapp is None:
            return (api,)
        secured = bool(self.tls_files.chain)
        return (api, exposure.Endpoint(exposure.LINK, "WACORE_HOSTNAME", self.coreapp[0], secured, exposure.OWN))
