"""The command line: help, imports of the chosen command only, and errors in one line."""

from __future__ import annotations

import functools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import main
from harness.mariadb import free_port
from harness.redis_server import RedisServer
from tests.cli.support import assert_one_line, environment, run, run_from_scratch

PROCESSES = {"webapp", "coreapp", "network", "handset"}


@functools.cache
def help_of(command: str) -> str:
    """Return the help of a command, which each test may read."""
    return run_from_scratch(command, "--help").stdout


@pytest.fixture
def addresses(tmp_path: Path) -> dict[str, str]:
    """Return variables for processes that use free ports and a separate directory."""
    names = ("API", "NETWORK_HTTP", "NETWORK_TCP", "COREAPP", "COREAPP_METRICS")
    free = {f"TIDINGS_{name}_ADDRESS": f"127.0.0.1:{free_port()}" for name in names}
    return {"TIDINGS_DATA_DIR": str(tmp_path / "data"), "TIDINGS_EMBEDDED": "1", **free}


@pytest.fixture
def taken() -> Iterator[str]:
    """Yield an address on which a process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def redis_url() -> Iterator[str]:
    """Yield the URL of an empty Redis server."""
    server = RedisServer()
    server.start()
    yield server.url
    server.remove()


def test_help_lists_every_command_with_its_description() -> None:
    done = run_from_scratch("--help")
    assert done.returncode == 0
    for name, line in main.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", done.stdout, re.MULTILINE)


def test_every_listed_command_has_a_module_and_no_module_is_unlisted() -> None:
    modules = {path.stem.replace("_", "-") for path in (Path(main.__file__).parent / "commands").glob("[a-z]*.py")}
    assert modules == set(main.COMMANDS)


@pytest.mark.parametrize("name", list(main.COMMANDS))
def test_the_help_of_every_command_contains_its_description(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    mask = os.umask(0o077)
    with pytest.raises(SystemExit, match=r"^0$"):
        main.main([name, "--help"])
    os.umask(mask)
    assert main.COMMANDS[name] in " ".join(capsys.readouterr().out.split())


def test_the_version_is_an_option_and_a_command() -> None:
    assert run_from_scratch("--version").stdout == "tidings 1.0.0rc1\n"
    assert run_from_scratch("version").stdout == "1.0.0rc1\n"


FIRST = {
    "up": "DATA_DIR API_ADDRESS BUSINESS_NUMBER WA_DB_ENGINE OUTGOING_ALLOW_WEBHOOKS",
    "webapp": "DATA_DIR API_ADDRESS BUSINESS_NUMBER WA_DB_ENGINE ADMIN_PASSWORD",
    "coreapp": "DATA_DIR COREAPP_ADDRESS BUSINESS_NUMBER WA_DB_ENGINE NETWORK_HTTP_URL",
    "network": "DATA_DIR NETWORK_HTTP_ADDRESS NETWORK_TCP_ADDRESS WA_DB_ENGINE NETWORK_BUSINESS_NUMBERS",
    "robots": "DATA_DIR NETWORK_HTTP_URL NETWORK_TCP_ADDRESS ROBOTS_PER_KIND ROBOTS_PREFIXES",
    "handset": "DATA_DIR NETWORK_HTTP_URL HANDSET_NAME HANDSET_PIN HANDSET_FILES",
}


@pytest.mark.parametrize("command", FIRST)
def test_help_of_a_process_lists_the_five_settings_that_matter_first(command: str) -> None:
    text = help_of(command).partition("The five that matter first:")[2]
    names = [name if name.startswith("WA_") else f"TIDINGS_{name}" for name in FIRST[command].split()]
    assert re.findall(r"^  (\S+)$", text, re.MULTILINE) == names
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("command", FIRST)
def test_defaults_in_the_help_of_a_process_are_those_of_the_documents(command: str) -> None:
    rows = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text().splitlines()
    text = help_of(command).partition("The five that matter first:")[2]
    blocks = re.split(r"^  (?=\S)", text.partition("\n\ndocs/")[0], flags=re.MULTILINE)[1:]
    assert len(blocks) == 5
    for name, *meaning in map(str.split, blocks):
        default = re.fullmatch(r".+ \((?:default: ([^()]+)|no default)\)", " ".join(meaning))
        assert default, name
        (row,) = (line for line in rows if line.startswith("| `") and f"`{name}`" in line.split("|")[1])
        documented = row.split("|")[2].replace("`", "")
        assert (default[1] or "–").partition(" ")[0] in documented, (name, default, row)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["version", "too", "much"]])
def test_wrong_use_exits_with_2(words: list[str]) -> None:
    assert run(*words).returncode == 2


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("webapp", {"webapp"}),
        ("coreapp", {"coreapp"}),
        ("network", {"network"}),
        ("robots", {"handset"}),
        ("handset", {"handset"}),
        ("migrate", set()),
        ("up", set()),
    ],
)
def test_a_command_imports_only_its_own_process(command: str, needed: set[str]) -> None:
    program = f"import sys, cli.main, cli.commands.{command} as c; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {name for name in done.stdout.split() if name in PROCESSES} == needed


def test_the_settings_of_the_processes_are_read_without_the_client_of_redis() -> None:
    program = "import sys, cli.commands.up, cli.process_settings; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not [name for name in done.stdout.split() if name.partition(".")[0] == "redis"]


def test_an_interrupt_during_the_imports_leaves_no_traceback() -> None:
    program = """if True:
        import sys, cli.start
        class Interrupt:
            def find_spec(self, name, path, target=None):
                if name == "cli.guard":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupt())
        sys.exit(cli.start.run())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("buffering", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "version", "queue --help"])
def test_output_that_nobody_reads_ends_a_command_without_a_word(words: str, buffering: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as unread:
        command = [sys.executable, "-c", "import sys, cli.start; sys.exit(cli.start.run())", *words.split()]
        done = subprocess.run(
            command, env=environment({"PYTHONUNBUFFERED": buffering}), stdout=unread, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_command_works_without_standard_streams(closed: str, tmp_path: Path) -> None:
    script = f'"{sys.executable}" -c "import cli.start, sys; sys.exit(cli.start.run())" keys status {closed}'
    migrate = run("migrate", TIDINGS_DATA_DIR=str(tmp_path))
    assert migrate.returncode == 0, migrate.stderr
    variables = environment({"TIDINGS_DATA_DIR": str(tmp_path)})
    done = subprocess.run(["sh", "-c", script], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["queue", "keys status", "number list", "token create --d360", "files status media"])
def test_a_command_in_a_wrong_directory_leaves_nothing_there(words: str, tmp_path: Path) -> None:
    done = run(*words.split(), TIDINGS_DATA_DIR=str(tmp_path / "data"))
    assert_one_line(done, 1, rf"tidings {words.split()[0]}: data directory .*No such file.*set TIDINGS_DATA_DIR")
    assert not list(tmp_path.iterdir())


def test_a_command_with_a_url_into_a_missing_directory_leaves_nothing_there(tmp_path: Path) -> None:
    variables = {
        "TIDINGS_DATA_DIR": str(tmp_path / "data"),
        "TIDINGS_BUSINESS_DB_URL": f"sqlite+aiosqlite:///{tmp_path}/data/business.db",
    }
    assert_one_line(run("queue", **variables), 1, r"tidings queue: data directory .*No such file")
    assert not list(tmp_path.iterdir())
    # The command reports its wrong settings itself, all at once.
    assert_one_line(run("queue", **variables, TIDINGS_LEASE_SECONDS="0", TIDINGS_DB_POOL_SIZE="0"), 2, ".*LEASE.*POOL")


@pytest.mark.parametrize("words", ["migrate", "queue", "template list"])
def test_an_unwritable_database_file_is_one_error_line_with_a_remedy(words: str, tmp_path: Path) -> None:
    (tmp_path / "business.db").mkdir()
    done = run(*words.split(), TIDINGS_DATA_DIR=str(tmp_path))
    assert_one_line(done, 1, ".*unable to open database file; check that this user can write in TIDINGS_DATA_DIR")


def test_migrate_prints_both_revisions_and_then_that_nothing_is_pending(tmp_path: Path) -> None:
    first = run("migrate", TIDINGS_DATA_DIR=str(tmp_path))
    assert first.returncode == 0, first.stderr
    assert re.search(r"^business +empty → \d{4} ", first.stdout, re.MULTILINE)
    second = run("migrate", TIDINGS_DATA_DIR=str(tmp_path))
    assert second.stdout.count("nothing to do") == 2


@pytest.mark.parametrize("command", ["webapp", "coreapp", "network", "robots", "up"])
def test_all_invalid_settings_are_named_in_one_line(command: str, addresses: dict[str, str]) -> None:
    wrong = {"TIDINGS_DB_POOL_SIZE": "many", "WA_DB_ENGINE": "ORACLE"}
    if command == "robots":
        wrong = {"TIDINGS_ROBOTS_PER_KIND": "many", "TIDINGS_NETWORK_TCP_ADDRESS": "nowhere"}
    done = run(command, **{**addresses, **wrong})
    assert_one_line(done, 2, rf"tidings {command}: ")
    for name in wrong:
        assert f"{name}=" in done.stderr


def test_the_first_password_is_printed_once_and_not_in_the_log(tmp_path: Path, addresses: dict[str, str]) -> None:
    def start() -> tuple[str, str]:
        read, write = os.pipe()
        everywhere = {"TIDINGS_API_ADDRESS": "0.0.0.0:0", "TIDINGS_API_TLS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "webapp", f"--ready-fd={write}"],
            env=environment({**addresses, **everywhere}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(write,),
            text=True,
        )
        os.close(write)
        with os.fdopen(read) as ready:
            ready.readline()
        process.terminate()
        return process.communicate(timeout=60)

    printed, logged = start()
    found = re.fullmatch(r"First password of admin.*: (\S+)\n", printed)
    assert found, printed
    assert found[1] not in logged
    assert "process.ready" in logged
    printed, _ = start()
    assert printed == ""


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("webapp", "TIDINGS_API_ADDRESS"),
        ("coreapp", "TIDINGS_COREAPP_ADDRESS"),
        ("coreapp", "TIDINGS_COREAPP_METRICS_ADDRESS"),
        ("network", "TIDINGS_NETWORK_TCP_ADDRESS"),
        ("network", "TIDINGS_NETWORK_HTTP_ADDRESS"),
        ("network", "TIDINGS_NETWORK_METRICS_ADDRESS"),
        ("network", "TIDINGS_NETWORK_NODE_ADDRESS"),
        ("handset --web", "TIDINGS_HANDSET_WEB_ADDRESS"),
    ],
)
def test_a_port_in_use_is_one_error_line_with_its_variable(
    command: str, variable: str, addresses: dict[str, str], taken: str, request: pytest.FixtureRequest
) -> None:
    # Only nodes of a cluster listen for each other.
    is_node = variable == "TIDINGS_NETWORK_NODE_ADDRESS"
    cluster = {"TIDINGS_REDIS_URL": request.getfixturevalue("redis_url")} if is_node else {}
    done = run(*command.split(), **{**addresses, **cluster, variable: taken})
    assert done.returncode in (1, 2)
    assert_one_line(done, done.returncode, rf"tidings {command.split()[0]}: {variable} {taken}: .*in use")


@pytest.mark.parametrize("command", ["webapp", "coreapp", "network"])
def test_a_process_refuses_to_start_on_pending_migrations(command: str, addresses: dict[str, str]) -> None:
    done = run(command, **{**addresses, "TIDINGS_EMBEDDED": "0"})
    assert_one_line(done, 2, rf"tidings {command}: the (business|network) tables .* run `tidings migrate`")


@pytest.mark.parametrize("command", ["webapp", "coreapp", "network", "migrate", "up"])
def test_an_impossible_data_directory_is_one_error_line(
    command: str, addresses: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for impossible in (tmp_path / "file" / "data", tmp_path / "file"):
        done = run(command, **{**addresses, "TIDINGS_DATA_DIR": str(impossible)})
        assert_one_line(done, 2, rf"tidings {command}: data directory .*: Not a directory")


@pytest.mark.parametrize("command", ["webapp", "migrate", "up", "queue", "doctor"])
def test_the_home_directory_of_an_unknown_user_is_one_error_line(command: str) -> None:
    done = run(command, TIDINGS_DATA_DIR="~nobody-of-this-name/data")
    assert_one_line(done, 2, rf"tidings {command}: TIDINGS_DATA_DIR='~nobody-of-this-name/data' .*unknown user")


@pytest.mark.parametrize("command", ["webapp", "coreapp", "network", "migrate", "up"])
def test_an_unreachable_database_is_one_error_line_without_the_password(
    command: str, addresses: dict[str, str]
) -> None:
    database = {"WA_DB_ENGINE": "MYSQL", "WA_DB_PORT": str(free_port()), "WA_DB_PASSWORD": "hidden-word"}
    done = run(command, **{**addresses, **database})
    assert_one_line(done, 1, rf"tidings {command}: .*database.*127\.0\.0\.1")
    assert "hidden-word" not in done.stderr + done.stdout
