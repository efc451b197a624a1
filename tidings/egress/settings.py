"""Settings of requests to hosts that others name."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal

from tidings.config import env
from tidings.egress import addresses, urls
from tidings.egress.addresses import Network

NONE = "none"
Purpose = Literal["webhooks", "media"]


@dataclasses.dataclass(frozen=True, slots=True)
class OutgoingSettings:
    """Networks that may be called, and the proxy."""

    # Networks that may be called although they are not public.
    allowed: tuple[Network, ...] = ()
    # Proxy for every connection; `None` for none. Its own address is not checked.
    proxy: urls.HttpTarget | None = None
    # Environment variable that lists the networks.
    variable: str = dataclasses.field(default="TIDINGS_OUTGOING_ALLOW", compare=False)


ONLY_PUBLIC = OutgoingSettings()


def read(variables: Mapping[str, str], purpose: Purpose) -> OutgoingSettings:
    """Read `TIDINGS_OUTGOING_ALLOW_WEBHOOKS` or `…_MEDIA`, else `TIDINGS_OUTGOING_ALLOW`; and `TIDINGS_OUTGOING_PROXY`.

    Raises `env.mistake`.
    """
    wrong: list[str] = []
    names = (f"TIDINGS_OUTGOING_ALLOW_{purpose.upper()}", "TIDINGS_OUTGOING_ALLOW")
    name = next((name for name in names if variables.get(name)), names[-1])
    raw = variables.get(name) or NONE
    allowed: list[Network] = []
    for part in (part.strip() for part in raw.split(",")):
        if part and part.lower() != NONE:
            try:
                allowed.append(ipaddress.ip_network(part))
            except ValueError:
                wrong.append(f"{part!r} in {name} is neither a network like 10.0.0.0/8 nor an address")
    for address in addresses.METADATA:
        if any(network.num_addresses == 1 and address in network for network in allowed):
            wrong.append(f"{address} in {name} is a metadata address, which is always refused")
    proxy = None
    where = variables.get("TIDINGS_OUTGOING_PROXY")
    if where:
        try:
            proxy = urls.parse(where)
        except ValueError:
            wrong.append("TIDINGS_OUTGOING_PROXY is not a URL like http://proxy.example:3128")
        if proxy is not None and (proxy.origin[2] or proxy.path != "/"):
            wrong.append("TIDINGS_OUTGOING_PROXY must be http:// and have no path")
    if wrong:
        raise env.mistake("; ".join(wrong))
    return OutgoingSettings(tuple(allowed), proxy, name)


OutgoingWebhooks = Annotated[OutgoingSettings, env.computed(lambda data: read(data["variables"], "webhooks"))]
OutgoingMedia = Annotated[OutgoingSettings, env.computed(lambda data: read(data["variables"], "media"))]
