"""The scaffold itself: measurements are true, and a figure beyond its limit fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.security.attack import Attack
from tests.security.figures import Figures, Form
from tests.security.scene import Target


@pytest.fixture
def apart(tmp_path: Path) -> Figures:
    """Figures that do not appear in the session's table."""
    return Figures(Form(long=False), tmp_path / "figures.jsonl")


async def test_without_an_attack_bystanders_are_served_and_an_exceeded_delay_fails(
    target: Target, apart: Figures
) -> None:
    kinds = ("webapp", "network", "messages", "read", "device")
    strike = None
    with pytest.raises(AssertionError, match="longest wait of read"):
        async with Attack(target, apart, Form(long=False))("peace", on="webapp", others=kinds, delay=0.0) as strike:
            await strike.last(0.5)
    assert strike is not None
    assert [waited.refusals for waited in strike.waited.values()] == [[]] * len(kinds)
    assert all(waited.took for waited in strike.waited.values())


def test_a_figure_beyond_its_limit_is_recorded_before_it_fails(apart: Figures, tmp_path: Path) -> None:
    apart.record("flood", "connections", 3, 3)
    apart.record("flood", "left", 3, 3, at_least=True)
    with pytest.raises(AssertionError, match=r"flood: memory 65 MiB \(limit ≤ 64 MiB\)"):
        apart.record("flood", "memory", 65, 64, "MiB")
    with pytest.raises(AssertionError, match="limit ≥ 3"):
        apart.record("flood", "left", 2, 3, at_least=True)
    lines = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    assert [line["is_within"] for line in lines] == [True, True, False, False]
    assert "BEYOND" in apart.table()
