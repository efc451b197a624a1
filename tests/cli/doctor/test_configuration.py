"""Wrong environment: variables with unusable values, missing secrets, files that others may read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli import process_records
from cli.doctor.configuration import ConfigurationCheck, PrivateFilesCheck, SecretsCheck, examine
from cli.doctor.findings import Level
from cli.doctor.plan import CheckPlan, DoctorOptions
from tidings.installation.process_records import ProcessRecord
from tidings.secrets import private_files
from tidings.secrets.secret_files import SecretFiles

ROOT = Path(__file__).parents[3]
PROCESSES = ("webapp", "coreapp", "network")


async def test_every_invalid_variable_is_reported_once(tmp_path: Path) -> None:
    variables = {
        "TIDINGS_DATA_DIR": str(tmp_path),
        "TIDINGS_BUSINESS_NUMBER": "12",
        "TIDINGS_MESSAGES_RATE": "fast",
        "TIDINGS_LEASE_SECONDS": "-1",
        "TIDINGS_NETWORK_BLOB_QUOTA_MB": "0",
        "WA_API_KEY": "short",
    }
    found = await ConfigurationCheck([examine(process, variables) for process in PROCESSES]).run()
    assert all(finding.level is Level.ERROR and finding.remedy for finding in found)
    texts = [finding.text for finding in found]
    assert len(texts) == len(set(texts))
    for name in set(variables) - {"TIDINGS_DATA_DIR"}:
        assert sum(name in text for text in texts) == 1, name


async def test_wrong_variables_are_reported_before_a_running_process_is_restarted_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = {"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_MAX_UPLOADS": "4"}
    record = ProcessRecord("webapp", 1, "1", started, ())
    monkeypatch.setattr(process_records, "find", lambda name, data_dir: record)
    plan = CheckPlan({**started, "TIDINGS_MAX_UPLOADS": "many"}, DoctorOptions(["webapp"], quick=True))
    try:
        found = await next(each.first for each in plan.groups() if each.first.name == "configuration").run()
    finally:
        await plan.close()
    (finding,) = found
    assert (finding.level, "TIDINGS_MAX_UPLOADS='many'" in finding.text) == (Level.ERROR, True)


async def test_the_configuration_check_creates_no_directory_and_no_secret(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path / "data")}
    examined = [examine(process, variables) for process in PROCESSES]
    (finding,) = await ConfigurationCheck(examined).run()
    assert finding.level is Level.FINE
    assert not any(each.has_secrets for each in examined)
    for process in PROCESSES:
        (missing,) = await SecretsCheck(process, variables, tmp_path / "data").run()
        assert missing.level is Level.WARNING
    assert "TIDINGS_MASTER_KEY" in (await SecretsCheck("coreapp", variables, tmp_path / "data").run())[0].text
    (directory,) = await PrivateFilesCheck(tmp_path / "data", []).run()
    assert (directory.level, "does not exist" in directory.text) == (Level.WARNING, True)
    assert not (tmp_path / "data").exists()


async def test_files_readable_by_others_are_reported_with_their_mode(tmp_path: Path) -> None:
    private_files.restrict(tmp_path)
    files = SecretFiles(tmp_path)
    files.load("network")
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert examine("network", variables).has_secrets
    (fine,) = await SecretsCheck("network", variables, tmp_path).run()
    assert fine.level is Level.FINE
    files.path("network").chmod(0o644)
    (loose,) = await SecretsCheck("network", variables, tmp_path).run()
    assert (loose.level, "network.json has mode 0644" in loose.text) == (Level.ERROR, True)
    key = tmp_path / "tls.key"
    key.write_text("key")
    key.chmod(0o640)
    (readable,) = await PrivateFilesCheck(tmp_path, [str(key)]).run()
    assert (readable.level, "tls.key has mode 0640" in readable.text) == (Level.ERROR, True)
    key.chmod(0o600)
    assert [finding.level for finding in await PrivateFilesCheck(tmp_path, [str(key)]).run()] == [Level.FINE]


READ_ONLY = """
mount -t tmpfs -o ro,mode=0700 none $1 && exec $2 - $1 <<'CHECK'
import asyncio, sys
from pathlib import Path
from cli.doctor.configuration import PrivateFilesCheck
for has_databases in (False, True):
    [finding] = asyncio.run(PrivateFilesCheck(Path(sys.argv[1]), [], has_databases=has_databases).run())
    print(finding.level.name, finding.text)
CHECK
"""


def test_a_read_only_data_directory_without_a_database_is_fine(tmp_path: Path) -> None:
    """The volume of a container's secrets is mounted read-only. Skips on machines that cannot make namespaces."""
    command = ["unshare", "--mount", "bash", "-c", READ_ONLY, "bash", str(tmp_path), sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "unshare" in done.stderr:
        pytest.skip("no namespace can be made here")
    assert done.stdout.splitlines() == [
        f"FINE {tmp_path} is readable by its owner only",
        f"ERROR the data directory {tmp_path} cannot be written",
    ], done.stderr


async def test_a_configured_secret_file_with_a_loose_mode_is_reported(tmp_path: Path) -> None:
    given = tmp_path / "registration"
    given.write_text("a key")
    given.chmod(0o604)
    (loose,) = await SecretsCheck("network", {"TIDINGS_REGISTRATION_KEY_FILE": str(given)}, tmp_path / "data").run()
    assert (loose.level, "registration has mode 0604" in loose.text) == (Level.ERROR, True)
