"""`--few-variants`: one variant of each test, and both databases for half of the tests each."""

from __future__ import annotations

from tests.selected_variants import select


def test_a_test_of_a_stage_runs_on_one_database_with_each_of_its_other_parameters() -> None:
    ids = [
        f"tests/coreapp/media/test_a.py::test_b[{name}-{engine}]" for name in "xy" for engine in ("sqlite", "mariadb")
    ]
    chosen = select(ids)
    assert len(chosen) == 2
    assert {node_id.partition("[")[2][0] for node_id in chosen} == {"x", "y"}


def test_each_database_gets_about_half_of_the_tests() -> None:
    ids = [
        f"tests/coreapp/groups/test_a.py::test_{number}[{engine}]"
        for number in range(400)
        for engine in ("sqlite", "mariadb")
    ]
    on_mariadb = sum("mariadb" in node_id for node_id in select(ids))
    assert 150 < on_mariadb < 250


def test_a_test_of_the_network_runs_on_mariadb_and_over_one_transport_on_sqlite() -> None:
    pairs = ("tcp-mariadb", "tcp-sqlite", "json-sqlite", "msgpack-sqlite")
    chosen = select(f"tests/network/test_a.py::test_{number}[{pair}]" for number in range(60) for pair in pairs)
    for number in range(60):
        of_test = {node_id.partition("[")[2] for node_id in chosen if f"::test_{number}[" in node_id}
        assert len(of_test) == 2
        assert "tcp-mariadb]" in of_test
    assert {node_id.partition("[")[2] for node_id in chosen} == {f"{pair}]" for pair in pairs}


def test_other_tests_run_in_all_variants() -> None:
    ids = [
        "tests/coreapp/shard/test_a.py::test_b[sqlite]",
        "tests/coreapp/shard/test_a.py::test_b[mariadb]",
        "tests/coreapp/journal/test_journal.py::test_b[sqlite]",
        "tests/coreapp/journal/test_journal.py::test_b[mariadb]",
        "tests/storage/test_a.py::test_b[sqlite]",
        "tests/storage/test_a.py::test_b[mariadb]",
        "tests/coreapp/media/test_a.py::test_b",
        "tests/coreapp/media/test_a.py::test_b[x-y]",
        "tests/network/test_a.py::test_b[0]",
    ]
    assert select(ids) == set(ids)
