"""Dashboards, rules and alerts, as far as they can be tested without a Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path

import prometheus_client
import pytest
import yaml

import coreapp.services
import network.services
import webapp.services
from tests.monitoring import files
from tests.monitoring.files import Alert
from tidings.objects import s3
from tidings.observability import log

ROOT = Path(__file__).parents[1]
# Modules that declare all metrics. The services import the last two only with some settings.
PROCESSES = (webapp.services, coreapp.services, network.services, s3, log)
# Metrics of the Webapp's HTTP server, and of Prometheus itself.
OTHERS = {"http_request_duration_seconds", "up", "web_connections"}


@pytest.fixture(scope="module")
def counted() -> set[str]:
    """Return every sample name that our metrics may have."""
    assert PROCESSES
    kinds = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    families = [*prometheus_client.REGISTRY.collect()]
    found = {family.name + end for family in families for end in kinds.get(family.type, ("",))}
    return found | {name + end for name in OTHERS for end in ("", "_bucket", "_sum", "_count")}


def test_rules_and_dashboards_query_existing_metrics(counted: set[str]) -> None:
    recorded = files.recorded()
    expressions = [*recorded.values(), *(alert.expression for alert in files.alerts())]
    expressions += [query for panel in files.panels() for query, _ in panel.queries]
    assert len(expressions) > 80
    for expression in expressions:
        assert files.metrics_of(expression), expression
        assert files.metrics_of(expression) <= counted | recorded.keys(), expression


def test_the_list_of_metrics_names_exactly_those_of_the_processes() -> None:
    assert PROCESSES
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(tidings_\w+)", section))
    end = {"counter": "_total"}
    ours = {family.name + end.get(family.type, "") for family in prometheus_client.REGISTRY.collect()}
    assert listed <= ours
    # Handsets serve no metrics. Theirs are registered if an earlier test has imported them.
    served = {name for name in ours if name.startswith("tidings_") and not name.startswith("tidings_handset_")}
    assert served - listed == set()


def test_every_alert_has_a_firing_and_a_quiet_test() -> None:
    names = {alert.name for alert in files.alerts()}
    assert files.tested() == {"fires": names, "does not": names}


@pytest.mark.parametrize("alert", files.alerts(), ids=lambda alert: alert.name)
def test_every_alert_has_a_runbook_section(alert: Alert) -> None:
    page = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    section = re.search(rf"^### {alert.name}\n\n(.+?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert len(section[1]) > 80


def test_the_runbook_names_only_existing_alerts() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bTidings[A-Z]\w+", page)) == {alert.name for alert in files.alerts()}


def test_dashboards_use_the_provisioned_data_source() -> None:
    provisioning = files.DASHBOARDS.parent / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    for path in files.DASHBOARDS.glob("*.json"):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        named = {target["datasource"]["uid"] for panel in dashboard["panels"] for target in panel["targets"]}
        assert named == {source["uid"] for source in sources}
        places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
        assert len(set(places)) == len(places)
        assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in dashboard["panels"])
