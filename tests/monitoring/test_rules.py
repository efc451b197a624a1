"""Configuration and rules, checked by Prometheus's own tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import prometheus
from harness.prometheus import CONFIGURATION


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    targets = {"webapp": ["127.0.0.1:1"], "coreapp": ["127.0.0.1:2"], "network": ["127.0.0.1:3"]}
    prepared = prometheus.prepare(tmp_path, "key", targets)
    assert "SUCCESS" in prometheus.promtool("check", "config", str(prepared))
    # The unchanged file refers to a file that exists only in production, so only its syntax is checked.
    said = prometheus.promtool("check", "config", "--syntax-only", str(CONFIGURATION / "prometheus.yml"))
    assert "SUCCESS" in said


def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in prometheus.promtool("check", "rules", "--lint-fatal", "rules/recording.yml", "rules/alerts.yml")


def test_promtool_passes_the_alert_tests() -> None:
    assert "SUCCESS" in prometheus.promtool("test", "rules", "tests/alerts_test.yml")


def test_a_wrong_threshold_fails_the_alert_tests(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "tests").mkdir()
    for name in ("rules/recording.yml", "rules/alerts.yml", "tests/alerts_test.yml"):
        text = (CONFIGURATION / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("avg5m > 0.015", "avg5m > 0.15"))
    with pytest.raises(prometheus.PromtoolError, match="TidingsDatabaseWritesVerySlow"):
        prometheus.promtool("test", "rules", "tests/alerts_test.yml", cwd=tmp_path)
