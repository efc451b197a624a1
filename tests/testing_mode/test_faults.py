"""The file of faults, which several processes share."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidings.testing.faults import FaultFile, FaultTarget, TooManyFaults


def test_two_users_of_a_file_count_together(tmp_path: Path) -> None:
    here, there = FaultFile(tmp_path), FaultFile(tmp_path)
    here.add(FaultTarget.MESSAGES, 100, http=500, code=1)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda place: (here, there)[place % 2].take(FaultTarget.MESSAGES), range(150)))
    assert sum(fault is not None for fault in found) == 100
    assert here.list_all() == there.list_all() == []


def test_a_fault_of_all_targets_meets_every_call_and_others_only_theirs(tmp_path: Path) -> None:
    faults = FaultFile(tmp_path)
    faults.add(FaultTarget.MEDIA, 1, http=500, code=1)
    assert faults.take(FaultTarget.WEBHOOKS) is None
    faults.add(FaultTarget.ALL, 1, http=503, code=2)
    found = faults.take(FaultTarget.WEBHOOKS)
    assert found is not None
    assert (found.http, found.code) == (503, 2)
    assert [faults.left(target) for target in (FaultTarget.MEDIA, FaultTarget.ALL)] == [1, 0]


def test_every_third_call_fails(tmp_path: Path) -> None:
    faults = FaultFile(tmp_path)
    faults.add(FaultTarget.MESSAGES, 2, every=3, http=500, code=1)
    found = [faults.take(FaultTarget.MESSAGES) is not None for _ in range(9)]
    assert found == [False, False, True, False, False, True, False, False, False]


def test_the_101st_fault_is_refused_and_deletion_makes_room(tmp_path: Path) -> None:
    faults = FaultFile(tmp_path)
    made = [faults.add(FaultTarget.ALL, 1, http=500, code=1) for _ in range(100)]
    with pytest.raises(TooManyFaults):
        faults.add(FaultTarget.ALL, 1, http=500, code=1)
    assert faults.delete(made[0].id)
    assert not faults.delete(made[0].id)
    assert faults.add(FaultTarget.ALL, 1, http=500, code=1).id == 101


def test_a_file_that_is_no_list_of_faults_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "faults.json").write_text("{broken")
    faults = FaultFile(tmp_path)
    assert faults.take(FaultTarget.MESSAGES) is None
    assert faults.list_all() == []
    faults.add(FaultTarget.MESSAGES, 1, http=500, code=1)
    assert len(faults.list_all()) == 1


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        FaultFile(tmp_path).add(FaultTarget.MESSAGES, 1, http=500, code=1)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "faults.json").stat().st_mode) == 0o600
