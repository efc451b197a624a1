"""The names that the original gave its metrics, made from our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_CALLBACKS, _CALLBACK_TIME = "callback_requests", "callback_requests_duration_ms_sum"
_TRANSACTIONS = "tidings_db_transaction_seconds"


def read_coreapp(text: str) -> list[Metric]:
    """The metrics of a Coreapp, and those that follow from them. text: in Prometheus format."""
    families = {
        family.name: family for family in text_string_to_metric_families(text) if not family.name.endswith("_created")
    }
    known: list[Metric] = []
    if _CALLBACKS in families and _CALLBACK_TIME in families:
        known.append(_callback_durations(families[_CALLBACKS], families.pop(_CALLBACK_TIME)))
    if _TRANSACTIONS in families:
        known.append(_request_durations(families[_TRANSACTIONS]))
    return [*known, *families.values()]


def contacts(counts: Mapping[bool, int]) -> Metric:
    """`db_contacts`. counts: by whether they are registered."""
    family = GaugeMetricFamily("db_contacts", "Contacts in the database", labels=["type"])
    family.add_metric(["whatsapp_user"], counts.get(True, 0))
    family.add_metric(["non_whatsapp_user"], counts.get(False, 0))
    return family


def messages(counts: Mapping[str, int]) -> Metric:
    """`db_messages`. counts: by type."""
    family = GaugeMetricFamily("db_messages", "Messages in the database", labels=["type"])
    for kind in sorted(counts):
        family.add_metric([kind or "undefined"], counts[kind])
    return family


def receipts(count: int) -> Metric:
    """`db_message_receipts`."""
    return GaugeMetricFamily("db_message_receipts", "Messages with a receipt in the database", value=count)


def _callback_durations(counts: Metric, sums: Metric) -> Metric:
    family = SummaryMetricFamily(
        "callback_requests_duration_ms", "Attempts at the webhook and their time", labels=["result", "type"]
    )
    took = {tuple(sorted(sample.labels.items())): sample.value for sample in _totals(sums)}
    for sample in _totals(counts):
        labels = [sample.labels.get("result", ""), sample.labels.get("type", "")]
        family.add_metric(labels, int(sample.value), took.get(tuple(sorted(sample.labels.items())), 0.0))
    return family


def _request_durations(transactions: Metric) -> Metric:
    family = SummaryMetricFamily("db_request_duration_us", "Transactions and their time", labels=["db", "request"])
    by_family: dict[str, dict[str, float]] = {}
    for sample in transactions.samples:
        part = sample.name.removeprefix(_TRANSACTIONS)
        if part in ("_count", "_sum"):
            by_family.setdefault(sample.labels.get("family", ""), {})[part] = sample.value
    for name, parts in by_family.items():
        family.add_metric([name, "commit"], int(parts.get("_count", 0)), parts.get("_sum", 0.0) * 1e6)
    return family


def _totals(family: Metric) -> Iterable[Sample]:
    return [sample for sample in family.samples if sample.name.endswith("_total")]
