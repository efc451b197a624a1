"""Telling the id of a group from the number of a person."""

from __future__ import annotations


def is_group(peer: str) -> bool:
    """Ids of groups are the creator's digits, a hyphen and more; numbers are digits only."""
    return "-" in peer
