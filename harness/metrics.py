"""Metrics of this process, by the names that `/metrics` shows."""

from __future__ import annotations

from prometheus_client import REGISTRY


def value(name: str, **labels: str) -> float:
    """Return the value of a metric; 0 with labels that have not been counted yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
