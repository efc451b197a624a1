"""Metrics under the names of the On-Premises API, derived from the metrics of Tidings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tidings.storage.business import shard_blocks

_CALLBACKS, _CALLBACK_TIME = "callback_requests", "callback_requests_duration_ms_sum"
_TRANSACTIONS = "tidings_db_transaction_seconds"
_FAILURES = "tidings_db_failed_transaction_seconds"
_ANSWERS, _CALLS = "endpoint_requests_duration_ms", "internal_server_requests_duration_ms"
_EVENTS = "tidings_events"
# Names of the On-Premises API, and the metrics of Tidings that count the same.
_SAME = {"pending_callbacks": "callback_queue_size", "pending_messages": "tidings_job_queue_size"}
# Summed over all shards, because the On-Premises API has no shards in these.
_WITHOUT_SHARDS = ("callback_queue_size", "in_messages_pending_processing")
_SUMMED = {"concurrent_rate_limit_triggered": "tidings_admission_refused"}
_RESULTS = {"media_uploads": "tidings_media_uploads", "media_downloads": "tidings_media_downloads"}
# Kinds of deliveries from the network that carry a message of a recipient.
_CARRIERS = frozenset({"prekey", "message", "group"})
_UNREADABLE = frozenset({"unusable", "duplicate", "undecryptable"})
_BY_TYPE = frozenset({"in_message_persisted", "out_message_persisted"})
# Store of the On-Premises API for each subject of transactions. A transaction here with several subjects counts as one
# about messages.
_STORES = {
    "messages": "messageStore",
    "contacts": "contactStore",
    "keys": "axolotlStore",
    "jobs": "_jobqueue-messages",
}
# Types of messages. Other types are internal to devices and unknown to API clients.
_TYPES = frozenset(
    {
        *("text", "image", "audio", "voice", "video", "document", "sticker", "location", "contacts", "interactive"),
        *("template", "hsm", "button", "order", "reaction", "system", "ephemeral", "unknown"),
    }
)


def read_coreapp(text: str, number: str = "", block: int | None = None) -> list[Metric]:
    """Return the metrics of a Coreapp and those derived from them, without the label `number`.

    text: metrics in the Prometheus format
    number: number whose samples are included; empty for the sums of all numbers
    block: shard block of the number, for samples with a shard but no number; `None` for all shards
    """
    families = {
        family.name: family for family in text_string_to_metric_families(text) if not family.name.endswith("_created")
    }
    if block is not None:
        for family in families.values():
            family.samples = [sample for sample in family.samples if _is_of(block, sample.labels.get("shard", ""))]
    for family in families.values():
        if any("number" in sample.labels for sample in family.samples):
            family.samples = _of_number(number, family.samples)
    known: list[Metric] = [_of_all_shards(name, families[ours]) for name, ours in _SAME.items() if ours in families]
    known += [_of_all_shards(name, families.pop(name)) for name in _WITHOUT_SHARDS if name in families]
    for name, ours in _SUMMED.items():
        if ours in families:
            total = sum(sample.value for sample in _totals(families[ours]))
            known.append(CounterMetricFamily(name, families[ours].documentation, value=total))
    if _ANSWERS in families:
        known.append(_counts(families[_ANSWERS]))
    if _CALLS in families:
        known.append(_connections(families[_CALLS]))
    known += [_by_type_and_result(name, families[ours]) for name, ours in _RESULTS.items() if ours in families]
    if _EVENTS in families:
        known.append(_arrived("in_message_from_server", families[_EVENTS], but=frozenset()))
        known.append(_arrived("in_message_decoded", families[_EVENTS], but=_UNREADABLE))
    for name in _BY_TYPE & families.keys():
        families[name].samples = [sample for sample in families[name].samples if sample.labels.get("type") in _TYPES]
    if _CALLBACKS in families and _CALLBACK_TIME in families:
        known.append(_callback_durations(families[_CALLBACKS], families.pop(_CALLBACK_TIME)))
    if _TRANSACTIONS in families:
        text = "Transactions and their duration"
        known.append(_request_durations("db_request_duration_us", text, families[_TRANSACTIONS]))
    if _FAILURES in families:
        text = "Failed transactions and their duration"
        known.append(_request_durations("db_request_error_duration_us", text, families[_FAILURES]))
    return [*known, *families.values()]


def _of_number(number: str, samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples of one number, or the sums of all numbers for an empty string, without the label `number`."""
    merged: dict[tuple[str, ...], Sample] = {}
    for sample in samples:
        labels = dict(sample.labels)
        if labels.pop("number", "") not in (number, "") and number:
            continue
        key = (sample.name, *(text for label in sorted(labels.items()) for text in label))
        before = merged.get(key)
        value = sample.value if before is None else before.value + sample.value
        merged[key] = sample._replace(labels=labels, value=value)
    return list(merged.values())


def _is_of(block: int, shard: str) -> bool:
    """Return whether a sample belongs to a number: those of its shards, and those without a shard."""
    return not shard.isdecimal() or shard_blocks.block_of(int(shard)) == block


def contacts(counts: Mapping[bool, int]) -> Metric:
    """Return `db_contacts`.

    counts: number of contacts by whether they are registered
    """
    family = GaugeMetricFamily("db_contacts", "Contacts in the database", labels=["type"])
    family.add_metric(["whatsapp_user"], counts.get(True, 0))
    family.add_metric(["non_whatsapp_user"], counts.get(False, 0))
    return family


def messages(counts: Mapping[str, int]) -> Metric:
    """Return `db_messages`.

    counts: number of messages by type
    """
    family = GaugeMetricFamily("db_messages", "Messages in the database", labels=["type"])
    for kind in sorted(counts):
        if not kind or kind in _TYPES:
            family.add_metric([kind or "undefined"], counts[kind])
    return family


def receipts(count: int) -> Metric:
    """Return `db_message_receipts`."""
    return GaugeMetricFamily("db_message_receipts", "Messages with a receipt in the database", value=count)


def _of_all_shards(name: str, ours: Metric) -> Metric:
    return GaugeMetricFamily(name, ours.documentation, value=sum(sample.value for sample in ours.samples))


def _callback_durations(counts: Metric, sums: Metric) -> Metric:
    family = SummaryMetricFamily(
        "callback_requests_duration_ms", "Attempts to call the webhook and their duration", labels=["result", "type"]
    )
    took = {tuple(sorted(sample.labels.items())): sample.value for sample in _totals(sums)}
    for sample in _totals(counts):
        labels = [sample.labels.get("result", ""), sample.labels.get("type", "")]
        family.add_metric(labels, int(sample.value), took.get(tuple(sorted(sample.labels.items())), 0.0))
    return family


def _request_durations(name: str, text: str, transactions: Metric) -> Metric:
    family = SummaryMetricFamily(name, text, labels=["db", "request"])
    by_subject: dict[str, dict[str, float]] = {}
    for sample in transactions.samples:
        part = sample.name.removeprefix(transactions.name)
        if part in ("_count", "_sum"):
            by_subject.setdefault(sample.labels["about"], {})[part] = sample.value
    for about, parts in by_subject.items():
        family.add_metric([_STORES[about], "commit"], int(parts.get("_count", 0)), parts.get("_sum", 0.0) * 1e6)
    return family


def _counts(responses: Metric) -> Metric:
    family = CounterMetricFamily("endpoint_requests", responses.documentation, labels=["method", "result"])
    for sample in responses.samples:
        if sample.name.endswith("_count"):
            family.add_metric([sample.labels["method"], sample.labels["result"]], sample.value)
    return family


def _connections(calls: Metric) -> Metric:
    family = SummaryMetricFamily("internal_server_conn_duration_ms", "Logins to the network", labels=["result"])
    parts: dict[str, dict[str, float]] = {}
    for sample in calls.samples:
        if sample.labels.get("operation") == "login":
            parts.setdefault(sample.labels["result"], {})[sample.name.rpartition("_")[2]] = sample.value
    for result, values in parts.items():
        family.add_metric([result], int(values.get("count", 0)), values.get("sum", 0.0))
    return family


def _by_type_and_result(name: str, ours: Metric) -> Metric:
    family = CounterMetricFamily(name, ours.documentation, labels=["type", "result"])
    for sample in _totals(ours):
        family.add_metric([sample.labels["type"], sample.labels["result"]], sample.value)
    return family


def _arrived(name: str, events: Metric, but: frozenset[str]) -> Metric:
    """Return the number of arrived messages by kind of envelope.

    but: outcomes that are not counted
    """
    family = CounterMetricFamily(name, "Messages from recipients that were received or read", labels=["type"])
    counted: dict[str, float] = {}
    for sample in _totals(events):
        kind = sample.labels["kind"]
        if kind in _CARRIERS and sample.labels["outcome"] not in but:
            counted[kind] = counted.get(kind, 0.0) + sample.value
    for kind, value in counted.items():
        family.add_metric([kind], value)
    return family


def _totals(family: Metric) -> Iterable[Sample]:
    return [sample for sample in family.samples if sample.name.endswith("_total")]
