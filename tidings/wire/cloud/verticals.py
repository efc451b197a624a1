"""Industries of a business: names in v1, and in the Cloud API."""

from __future__ import annotations

from collections.abc import Mapping

UNDEFINED = "UNDEFINED"

_NAMES: Mapping[str, str] = {
    "AUTO": "Automotive",
    "BEAUTY": "Beauty, Spa and Salon",
    "APPAREL": "Clothing and Apparel",
    "EDU": "Education",
    "ENTERTAIN": "Entertainment",
    "EVENT_PLAN": "Event Planning and Service",
    "FINANCE": "Finance and Banking",
    "GROCERY": "Food and Grocery",
    "GOVT": "Public Service",
    "HOTEL": "Hotel and Lodging",
    "HEALTH": "Medical and Health",
    "NONPROFIT": "Non-profit",
    "PROF_SERVICES": "Professional Services",
    "RETAIL": "Shopping and Retail",
    "TRAVEL": "Travel and Transportation",
    "RESTAURANT": "Restaurant",
    "NOT_A_BIZ": "Not a Business",
    "OTHER": "Other",
}
_BY_NAME = {name.lower(): vertical for vertical, name in _NAMES.items()}
KNOWN = tuple(_NAMES.values())


def to_cloud(text: str) -> str | None:
    """Return an industry for the Cloud API, given by its name in v1 or in the Cloud API; None for an unknown one."""
    upper = text.strip().upper()
    if upper in ("", UNDEFINED):
        return UNDEFINED
    return upper if upper in _NAMES else _BY_NAME.get(upper.lower())


def of_cloud(vertical: str) -> str:
    """Return the name in v1 of an industry in the Cloud API; empty for none. An unknown one is returned as it is."""
    upper = vertical.upper()
    return "" if upper == UNDEFINED else _NAMES.get(upper, vertical)
