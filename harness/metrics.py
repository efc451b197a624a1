"""The metrics of this process, by the names that `/metrics` shows."""

from __future__ import annotations

from prometheus_client import REGISTRY


def value(name: str, **labels: str) -> float:
    """0 for a metric with labels that nothing has counted yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
