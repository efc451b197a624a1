"""The small JSON of a benchmark's results: figures without samples, one line per run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# Parts of a document, in the order of the file; the others stay in the raw data.
_HEADER = ("date", "commit", "added_in", "machine")
_PARTS = ("ratios", "calibrations", "shares", "runs")
_SAMPLES = ("points", "throughput")  # entries of a run that grow with its length
DIGITS = 4  # after the decimal point
# Runs above which the file has of each only these entries, with its first latency, and no shares of calibrations.
MANY = 60
_ESSENTIAL = ("name", "parameters", "unit", "seconds", "rate", "others_cpu", "marked", "product_us")


def reduce(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without the samples of its runs, and without notes and tables, which are in the Markdown."""
    found = {name: _rounded(document[name]) for name in (*_HEADER, *_PARTS) if name in document}
    if len(found["runs"]) > MANY:
        found.pop("shares", None)
        found["runs"] = [_essential(run) for run in found["runs"]]
    found["runs"] = [
        {name: _without_tables(value) for name, value in run.items() if name not in _SAMPLES} for run in found["runs"]
    ]
    return found


def _essential(run: Mapping[str, Any]) -> dict[str, Any]:
    name, found = next(iter(run["latencies_ms"].items()))
    latencies = {name: {key: round(value, 2) for key, value in found.items()}}
    return {name: run[name] for name in _ESSENTIAL} | {"latencies_ms": latencies}


def dumps(document: Mapping[str, Any]) -> str:
    """Return a reduced document as JSON with one line per run, ratio, calibration and share."""
    entries = ",\n".join(f' "{name}": {_lines(value)}' for name, value in document.items())
    return f"{{\n{entries}\n}}\n"


def _without_tables(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_tables(each) for name, each in value.items() if not _is_table(each)}


def _is_table(value: Any) -> bool:
    """Return whether the value is a list of rows."""
    return isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(each) for each in value]
    return value


def _lines(value: Any) -> str:
    """Return lists, and mappings of mappings, with one line per element; everything else on one line."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {_compact(each)}" for each in value) + "\n ]"
    if isinstance(value, Mapping) and any(isinstance(each, Mapping) for each in value.values()):
        pairs = (f"  {_compact(name)}: {_compact(each)}" for name, each in value.items())
        return "{\n" + ",\n".join(pairs) + "\n }"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
