"""Certificates for the processes of an installation, in one command."""

from __future__ import annotations

import datetime
import re
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from cli import main
from tests.authority import Authority
from tidings.net import tls
from tidings.net.tls import Clients, TlsFiles


def run(*words: object) -> int:
    return main.main(["certificates", *map(str, words)])


def names_of(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in held]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Perform a handshake in memory. Raises `ssl.SSLError`."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there, server_hostname=name)]
    done = [False, False]
    while not all(done):
        for index, side in enumerate(sides):
            try:
                side.do_handshake()
                done[index] = True
            except ssl.SSLWantReadError:
                pass


def test_every_process_gets_a_certificate_that_the_others_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "tls"
    assert run(directory, "coreapp=core.example,10.0.0.7", "webapp") == 0
    assert re.findall(r"^(\w+)  (\w+).pem", capsys.readouterr().out, re.MULTILINE) == [
        ("made", "ca"),
        ("made", "coreapp"),
        ("made", "webapp"),
    ]
    assert names_of(directory / "coreapp.pem") == [
        "core.example", "10.0.0.7", "coreapp", "localhost", "127.0.0.1", "::1"
    ]  # fmt: skip
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if path.suffix == ".key" else 0o644)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    files = {
        name: TlsFiles(*(str(directory / part) for part in (f"{name}.pem", f"{name}.key", "ca.pem")))
        for name in ("coreapp", "webapp")
    }
    server = tls.server("test", files["coreapp"], clients=Clients.REQUIRED)
    for name in ("core.example", "10.0.0.7", "localhost"):
        handshake(server, tls.client("test", files["webapp"]), name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, tls.client("test", files["webapp"]), "webapp")


def test_certificates_are_kept_until_near_expiry_or_a_change_of_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(*words: object) -> list[str]:
        assert run(tmp_path, *words) == 0
        return re.findall(r"^made  (\w+).pem", capsys.readouterr().out, re.MULTILINE)

    assert made() == ["ca", "webapp", "coreapp", "network", "robots", "database"]
    assert made() == []
    assert made("webapp", "coreapp=new.example") == ["coreapp"]
    assert made("webapp", "--renew") == ["webapp"]
    assert made("webapp", "--renew", "--days", 30) == ["webapp"]
    assert made("webapp") == ["webapp"]
    end = x509.load_pem_x509_certificate((tmp_path / "webapp.pem").read_bytes()).not_valid_after_utc
    assert end - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=390)
    (tmp_path / "robots.key").unlink()
    assert made("robots") == ["robots"]


def test_an_interrupted_authority_is_completed_with_the_existing_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "webapp") == 0
    key = (tmp_path / "ca.key").read_bytes()
    (tmp_path / "ca.pem").unlink()
    assert run(tmp_path, "coreapp") == 0
    assert (tmp_path / "ca.key").read_bytes() == key
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    for name in ("webapp", "coreapp"):
        x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes()).verify_directly_issued_by(authority)


def test_invalid_arguments_are_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: object) -> str:
        assert run(*words) == 1
        return capsys.readouterr().err

    assert "'ca' cannot be the name" in said(tmp_path, "ca")
    assert "'../x' cannot be the name" in said(tmp_path, "../x")
    for host in ("ünïcode", "two words", "https://tidings.example", "tidings.example:9090", "-a..b"):
        assert f"'{host}' is not a host name" in said(tmp_path, f"webapp={host}")
    assert "--days" in said(tmp_path, "--days", 0)
    other = Authority().issue("other")
    assert run(tmp_path) == 0
    (tmp_path / "ca.key").write_bytes(other[0])
    assert "is not the key of" in said(tmp_path)
    (tmp_path / "ca.key").unlink()
    assert "ca.key is missing" in said(tmp_path)
    (tmp_path / "ca.pem").write_bytes(b"nothing")
    (tmp_path / "ca.key").write_bytes(other[0])
    assert "cannot be read" in said(tmp_path)


SEED = "0123456789abcdef" * 4


def test_containers_with_the_same_seed_trust_each_other_without_a_shared_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDINGS_AUTHORITY_SEED", SEED)
    assert run(tmp_path / "one", "coreapp=10.0.0.7") == 0
    assert run(tmp_path / "two", "webapp") == 0
    monkeypatch.setenv("TIDINGS_AUTHORITY_SEED", SEED[::-1])
    assert run(tmp_path / "other", "webapp") == 0
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["ca.pem", "coreapp.key", "coreapp.pem"]

    def files(directory: str, name: str) -> TlsFiles:
        at = tmp_path / directory
        return TlsFiles(str(at / f"{name}.pem"), str(at / f"{name}.key"), str(at / "ca.pem"))

    server = tls.server("test", files("one", "coreapp"), clients=Clients.REQUIRED)
    handshake(server, tls.client("test", files("two", "webapp")), "coreapp")
    # Each side refuses certificates from another seed.
    with pytest.raises(ssl.SSLError):
        handshake(server, tls.client("test", files("other", "webapp")), "coreapp")
    foreign = tls.server("test", files("other", "webapp"))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(foreign, tls.client("test", files("two", "webapp")), "webapp")


def test_a_restart_with_a_seed_keeps_a_valid_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDINGS_AUTHORITY_SEED", SEED)
    assert run(tmp_path / "tls", "coreapp") == 0
    before = (tmp_path / "tls" / "coreapp.pem").read_bytes()
    capsys.readouterr()
    assert run(tmp_path / "tls", "coreapp") == 0
    assert "kept  coreapp.pem" in capsys.readouterr().out
    assert (tmp_path / "tls" / "coreapp.pem").read_bytes() == before


def test_a_short_seed_or_one_beside_an_existing_authority_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path / "tls", "coreapp") == 0
    monkeypatch.setenv("TIDINGS_AUTHORITY_SEED", SEED)
    assert run(tmp_path / "tls", "coreapp") == 1
    assert "has its own authority: leave TIDINGS_AUTHORITY_SEED out" in capsys.readouterr().err
    monkeypatch.setenv("TIDINGS_AUTHORITY_SEED", "")
    assert run(tmp_path / "new", "coreapp") == 1
    assert "is set and empty" in capsys.readouterr().err
    monkeypatch.setenv("TIDINGS_AUTHORITY_SEED", "s" * 31)
    assert run(tmp_path / "new", "coreapp") == 1
    assert "shorter than 32 characters" in capsys.readouterr().err
