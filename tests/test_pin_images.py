"""`docker/pin-images` writes the digests that a registry has, all or none."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("Dockerfile", "docker-compose.yml", "docker-compose.multi.yml")
REGISTRIES = ("docker.io",)


class Registry(http.server.ThreadingHTTPServer):
    """Registry that issues a token to every client, and has a manifest for every tag except `missing`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        # Part of the manifest's content: changes the digest of every tag.
        self.revision = "first"
        self.missing: set[str] = set()

    def manifest(self, repository: str, tag: str) -> bytes:
        content = {"schemaVersion": 2, "manifests": [], "annotations": {"of": f"{repository}:{tag} {self.revision}"}}
        return json.dumps(content).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/token":
            scope = re.search(r"scope=repository%3A(.+)%3Apull", query)
            self._respond(200 if scope and "service=registry" in query else 400, json.dumps({"token": "good"}).encode())
            return
        match = re.fullmatch(r"/v2/(.+)/manifests/(.+)", path)
        assert match is not None, path
        if self.headers.get("Authorization") != "Bearer good":
            challenge = f'Bearer realm="{self.server.url}/token",service="registry"'
            self._respond(401, b"{}", ("WWW-Authenticate", challenge))
        elif f"{match[1]}:{match[2]}" in self.server.missing:
            self._respond(404, b"{}")
        else:
            accepted = self.headers["Accept"].split(", ")
            assert accepted[0] == "application/vnd.oci.image.index.v1+json", "an image for several platforms first"
            self._respond(200, self.server.manifest(match[1], match[2]))

    def _respond(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Directory with copies of the repository's files without digests, for a run that changes them."""
    for name in FILES:
        shutil.copy(ROOT / "docker" / name, tmp_path)
        (tmp_path / name).write_text(re.sub(r"@sha256:[0-9a-f]{64}", "", (tmp_path / name).read_text()))
    return tmp_path


def pin(directory: Path, registry: Registry, *words: str) -> subprocess.CompletedProcess[str]:
    mirrors = [word for name in REGISTRIES for word in ("--registry", f"{name}={registry.url}")]
    command = [sys.executable, str(ROOT / "docker" / "pin-images"), "--directory", str(directory), *mirrors, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def images(directory: Path) -> dict[str, str]:
    """Return the digest of each image in the files, empty for none, by image."""
    text = "\n".join((directory / name).read_text() for name in FILES)
    found = re.findall(r"(docker\.io/[\w./-]+:[\w.-]+)(?:@(sha256:[0-9a-f]{64}))?", text)
    return dict(found)


def test_every_image_gets_the_digest_of_its_manifest(directory: Path, registry: Registry) -> None:
    before = {name: (directory / name).read_text() for name in FILES}
    assert set(images(directory).values()) == {""}
    done = pin(directory, registry)
    assert (done.returncode, done.stderr) == (0, "")
    pinned = images(directory)
    assert {"docker.io/library/mariadb:10.11", "docker.io/library/python:3.14-slim-bookworm"} <= pinned.keys()
    for image, digest in pinned.items():
        repository, tag = image.removeprefix("docker.io/").rsplit(":", 1)
        assert digest == "sha256:" + hashlib.sha256(registry.manifest(repository, tag)).hexdigest(), image
    for name, text in before.items():
        assert re.sub(r"@sha256:[0-9a-f]{64}", "", (directory / name).read_text()) == text, "nothing else changes"
    assert "localhost/tidings:latest@" not in (directory / "docker-compose.yml").read_text(), "ours is built here"


def test_a_check_writes_nothing_and_reports_moved_tags(directory: Path, registry: Registry) -> None:
    assert pin(directory, registry, "--check").returncode == 1
    assert set(images(directory).values()) == {""}
    assert pin(directory, registry).returncode == 0
    assert pin(directory, registry, "--check").returncode == 0
    first = images(directory)
    registry.revision = "second"
    assert pin(directory, registry, "--check").returncode == 1
    assert images(directory) == first
    assert pin(directory, registry).returncode == 0
    second = images(directory)
    assert not [image for image, digest in second.items() if digest == first[image]]


def test_a_missing_image_is_named_and_nothing_is_written(directory: Path, registry: Registry) -> None:
    registry.missing.add("library/redis:7.0")
    done = pin(directory, registry)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("pin-images: docker.io/library/redis:7.0: ")
    assert line.endswith("nothing was written")
    assert set(images(directory).values()) == {""}


def test_an_unreachable_registry_is_reported_in_one_line(directory: Path, registry: Registry) -> None:
    registry.shutdown()
    registry.server_close()
    done = pin(directory, registry)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
