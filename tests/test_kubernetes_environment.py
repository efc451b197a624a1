"""The manifests for Kubernetes describe a working installation: processes start with the settings of their pods."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import polling
from harness.mariadb import MariaDB, free_port
from harness.processes import Process, inherited

FOLDER = Path(__file__).parents[1] / "docker" / "kubernetes"
ROLES = ("network", "coreapp", "webapp")
# Variables that need a cluster: the database over TLS, Redis, addresses of pods.
OF_A_CLUSTER = {"WA_DB_SSL_CA", "TIDINGS_REDIS_URL", "TIDINGS_REDIS_PASSWORD", "TIDINGS_NETWORK_NODE_ADDRESS"}


class Cluster:
    """Pods as processes on this machine: paths are in a directory, ports are free ones, hosts are this machine."""

    def __init__(self, directory: Path, mariadb: MariaDB) -> None:
        self.directory = directory
        self.mariadb = mariadb
        made = subprocess.run([FOLDER / "secrets.sh"], capture_output=True, text=True, check=True)
        self.secrets: dict[str, str] = yaml.safe_load(made.stdout)["stringData"]
        self._config: dict[str, str] = yaml.safe_load((FOLDER / "config.yaml").read_text())["data"]
        self.ports = {port: free_port() for port in (9090, 6252, 6253, 9095, 9096, 9098)}

    def pod(self, role: str) -> Any:
        """Return the specification of the pods of a role."""
        documents = yaml.safe_load_all((FOLDER / f"{role}.yaml").read_text(encoding="utf-8"))
        (found,) = [one for one in documents if one["kind"] in ("Deployment", "Job")]
        return found["spec"]["template"]["spec"]

    def here(self, role: str, text: str) -> str:
        """Adapt a value of the manifests to this machine."""
        text = text.replace("/etc/tidings/tls", str(self.directory / role / "tls"))
        text = text.replace("https://network:", "https://localhost:").replace("network:9096", "localhost:9096")
        text = text.replace("0.0.0.0:", "127.0.0.1:")
        return re.sub(r"(?<=:)(\d{4})$", lambda port: str(self.ports.get(int(port[1]), port[1])), text)

    def environment(self, role: str, container: Any) -> dict[str, str]:
        """Return the variables of a container, from the config map, from secrets and from the pod itself."""
        found = dict(self._config) if container.get("envFrom") else {}
        for entry in container["env"]:
            source = entry.get("valueFrom", {})
            if "secretKeyRef" in source:
                found[entry["name"]] = self.secrets[source["secretKeyRef"]["key"]]
            elif "configMapKeyRef" in source:
                found[entry["name"]] = self._config[source["configMapKeyRef"]["key"]]
            elif "fieldRef" in source:
                found[entry["name"]] = {"metadata.name": f"{role}-pod", "status.podIP": "127.0.0.1"}[
                    source["fieldRef"]["fieldPath"]
                ]
            else:
                found[entry["name"]] = self.here(role, entry["value"])
        local = {
            "TIDINGS_DATA_DIR": str(self.directory / role / "data"),
            "TIDINGS_MEDIA_DIR": str(self.directory / "media"),
            "TIDINGS_NETWORK_BLOB_DIR": str(self.directory / "blobs"),
            "WA_DB_HOSTNAME": "127.0.0.1",
            "WA_DB_PORT": str(self.mariadb.port),
            # By default the API has TLS on every address except loopback, where this test listens.
            "TIDINGS_API_TLS": "1",
            "TIDINGS_NETWORK_HTTP_URL": self.here(role, self._config["TIDINGS_NETWORK_HTTP_URL"]),
        }
        return {name: value for name, value in (found | local).items() if name not in OF_A_CLUSTER}

    def run(self, role: str, container: Any) -> None:
        """Run a container until it ends with status 0."""
        words = [self.here(role, word) for word in container["args"]]
        environment = {**inherited(), **self.environment(role, container)}
        command = [sys.executable, "-m", "cli.main", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def make_users(self) -> None:
        """Create the schemas and users of the database, as the guide instructs the administrator."""
        passwords = {
            f"TIDINGS_{role.upper()}_DB_PASSWORD": self.secrets[f"{role}-database-password"]
            for role in ("business", "network", "migrate")
        }
        command = [sys.executable, "-m", "cli.main", "database", "sql", "--without-tls"]
        environment = {**inherited(), **passwords}
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        with self.mariadb.connect() as connection, connection.cursor() as cursor:
            for statement in [line for line in printed.splitlines() if not line.startswith("--")]:
                cursor.execute(statement)

    def remove_users(self) -> None:
        with self.mariadb.connect() as connection, connection.cursor() as cursor:
            for schema in ("business", "network"):
                cursor.execute(f"DROP DATABASE IF EXISTS tidings_{schema}")
            for user in ("business", "network", "migrate"):
                cursor.execute(f"DROP USER IF EXISTS 'tidings_{user}'@'%'")


@pytest.fixture
def cluster(tmp_path: Path, mariadb: MariaDB) -> Iterator[Cluster]:
    made = Cluster(tmp_path, mariadb)
    try:
        made.make_users()
        yield made
    finally:
        made.remove_users()


def request_status(url: str) -> int:
    """Return the status of the response, without verifying the certificate; 0 for no response."""
    try:
        with urllib.request.urlopen(url, timeout=10, context=ssl._create_unverified_context()) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def subject(port: int) -> str:
    """Return the names in the certificate of a listener."""
    context = ssl._create_unverified_context()
    with socket.create_connection(("127.0.0.1", port), 10) as sock, context.wrap_socket(sock) as secured:
        shown = ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"")
    return subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"], input=shown, capture_output=True, text=True, check=True
    ).stdout


async def test_processes_with_the_manifests_settings_connect_and_authenticate(cluster: Cluster) -> None:
    cluster.run("migrate", cluster.pod("migrate")["containers"][0])
    processes = []
    try:
        for role in ROLES:
            pod = cluster.pod(role)
            cluster.run(role, pod["initContainers"][0])
            (container,) = pod["containers"]
            process = Process(role, container["args"][0], cluster.environment(role, container), cluster.directory)
            processes.append(process)
            await process.start()
        # Metrics have no TLS on loopback.
        ready = {
            "webapp": f"https://127.0.0.1:{cluster.ports[9090]}/health/ready",
            "coreapp": f"http://127.0.0.1:{cluster.ports[6253]}/health/ready",
            "network": f"https://127.0.0.1:{cluster.ports[9095]}/health/ready",
        }
        # A Webapp is ready when it has a Coreapp for each shard, a Coreapp when it is logged in at the network.
        seen: dict[str, int] = {}

        def all_ready() -> bool:
            seen.update({role: request_status(url) for role, url in ready.items()})
            return set(seen.values()) == {200}

        try:
            await polling.until(all_ready, seconds=90, pause=0.5)
        except TimeoutError:
            words = [process.log_tail(1000) for process in processes]
            pytest.fail(f"not ready: {seen}\n" + "\n\n".join(words))
        assert "DNS:network.tidings.svc" in subject(cluster.ports[9095])
    finally:
        for process in reversed(processes):
            await process.stop()
