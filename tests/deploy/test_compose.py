"""Each compose file on real containers: from an empty machine to messages over HTTPS, also while containers
restart."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import polling
from tests.deploy import images
from tests.deploy.business import PASSWORD, Business, Webhook
from tests.deploy.podman import MACHINE, ROOT, CommandFailed, Podman
from tests.deploy.project import Project, leftovers
from tidings.keys import rotation

VARIABLES = {
    **images.VARIABLES,
    "TIDINGS_OUTGOING_ALLOW_WEBHOOKS": f"{MACHINE}/32",
    "TIDINGS_REENGAGEMENT_WINDOW": "0",
    "TIDINGS_ROBOTS_PER_KIND": "20",
    "TIDINGS_LEASE_SECONDS": "6",
}
READER, ECHO, UNKNOWN = "15550110001", "15550140001", "15550160001"
API = "https://127.0.0.1:9090"
RATE = 10.0  # messages per second while containers are restarted
# Optional script of a business, which is kept outside the repository.
PLAY = ROOT.parent / "shared" / "acceptance" / "first_message.py"


@dataclasses.dataclass(frozen=True)
class Deployment:
    """One compose file."""

    name: str
    ours: tuple[str, ...]  # services that run our image
    others: tuple[str, ...]
    restarted: tuple[str, ...]  # services to restart, in order

    @property
    def file(self) -> Path:
        return ROOT / "docker" / self.name

    @property
    def servers(self) -> tuple[str, ...]:
        # Services with a health check.
        return tuple(service for service in (*self.others, *self.ours) if service not in ("robots", "proxy"))


SINGLE = Deployment(
    "docker-compose.yml",
    ours=("network", "coreapp", "webapp", "robots"),
    others=("database",),
    restarted=("webapp", "coreapp", "network", "robots", "database"),
)
MULTI = Deployment(
    "docker-compose.multi.yml",
    ours=("network-1", "network-2", "coreapp-1", "coreapp-2", "coreapp-3", "webapp-1", "webapp-2", "robots"),
    others=("database", "redis", "proxy"),
    restarted=("webapp-1", "coreapp-1", "network-1", "redis", "proxy", "robots", "database"),
)


@dataclasses.dataclass
class Scene:
    deployment: Deployment
    project: Project
    business: Business
    webhook: Webhook

    def say(self, line: str) -> None:
        print(f"        {line}", flush=True)


@pytest.fixture(scope="module", params=[SINGLE, MULTI], ids=lambda deployment: deployment.name)
def scene(podman: Podman, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Containers of a compose file, started once for all its tests. They are removed at the end, with nothing
    left."""
    deployment = request.param
    webhook = Webhook(MACHINE)
    project = Project(podman, deployment.file, VARIABLES)
    print(f"\n{deployment.name}", flush=True)
    try:
        begun = time.monotonic()
        project.up()
        project.wait_healthy(deployment.servers)
        made = Scene(deployment, project, Business(API), webhook)
        made.say(f"up: {len(deployment.servers)} servers healthy after {time.monotonic() - begun:.0f} s")
        # A number that is looked up before it is registered counts as none for five minutes.
        polling.wait_until(lambda: "robots.ready" in project.logs("robots"), seconds=120, pause=0.5)
        yield made
    finally:
        project.down()
        webhook.close()
    assert leftovers(podman) == []
    print("        down: no container, volume or network is left", flush=True)


def test_the_first_password_is_random_and_must_be_changed_at_first_login(scene: Scene) -> None:
    webapp = next(service for service in scene.deployment.ours if service.startswith("webapp"))
    status, _ = scene.business.login("secret", PASSWORD)
    assert status == 401, "the original's default opens nothing"
    first = scene.project.inside(webapp, "cat", "/var/lib/tidings/admin_password").strip()
    status, response = scene.business.login(first)
    assert (status, response["errors"][0]["code"]) == (403, 1024)
    status, response = scene.business.login(first, PASSWORD)
    assert status == 200, response
    # Another Webapp knows the new password within a second, and until then may respond that it has to be changed.
    refused: list[int] = []

    def is_of_no_use() -> bool:
        refused.append(scene.business.login(first)[0])
        return refused[-1] == 401

    polling.wait_until(is_of_no_use, seconds=10, pause=0.5)
    assert 200 not in refused
    assert scene.business.login(PASSWORD)[0] == 200
    scene.say("first password: random, and of no use after the first login")


def test_a_business_sends_its_first_messages_over_https(scene: Scene) -> None:
    business, webhook = scene.business, scene.webhook
    polling.wait_until(lambda: "connected" in json.dumps(business.call("GET", "/v1/health")[1]), seconds=60, pause=0.5)
    settings = {"webhooks": {"url": webhook.url}, "sent_status": True}
    assert business.call("PATCH", "/v1/settings/application", settings)[0] == 200
    status, response = business.call(
        "POST", "/v1/contacts", {"blocking": "wait", "contacts": [f"+{READER}", f"+{UNKNOWN}"]}
    )
    assert [contact["status"] for contact in response["contacts"]] == ["valid", "invalid"], (status, response)
    sent = business.send(READER, "Hello from a container")
    assert webhook.wait(lambda: "read" in webhook.statuses().get(sent, []), 30)
    assert webhook.statuses()[sent] == ["sent", "delivered", "read"]
    text = "echo this: \u00fc \u4f60\u597d \U0001f44b"
    business.send(ECHO, text)
    assert webhook.wait(lambda: any(message.get("text", {}).get("body") == text for message in webhook.inbound()), 30)
    scene.say("first message: sent, delivered, read; the reply came to the webhook")


def test_the_first_message_script_beside_the_repository_passes(scene: Scene, tmp_path: Path) -> None:
    if not PLAY.exists():
        pytest.skip("there is none here")
    # The webhook listens on loopback, which a container cannot reach: it listens on the address for containers instead.
    here = tmp_path / PLAY.name
    here.write_text(PLAY.read_text().replace("127.0.0.1", MACHINE))
    command = [sys.executable, str(here), API, "--password", PASSWORD]
    played = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.splitlines()[-1] == "all steps held"
    scene.say(f"first_message.py: {played.stdout.count('ok   ')} steps, all held")
    settings = {"webhooks": {"url": scene.webhook.url}}
    assert scene.business.call("PATCH", "/v1/settings/application", settings)[0] == 200


def test_health_lists_the_role_of_each_coreapp(scene: Scene) -> None:
    if scene.deployment is SINGLE:
        pytest.skip("it has one of each")
    health = scene.business.call("GET", "/v1/health")[1]["health"]
    roles = sorted(node["role"] for name, node in health.items() if name.startswith("coreapp-"))
    assert roles == ["coreapp", "primary_master", "secondary_master"], health
    assert scene.business.call("GET", "/v1/account/shards")[1]["account"]["shards"] == 2
    scene.say("health: a primary_master, a secondary_master with the other shard, and a coreapp to spare")


def test_prometheus_discovers_and_scrapes_every_process(scene: Scene) -> None:
    scene.project.add("prometheus")
    wanted = sorted(service.partition("-")[0] for service in scene.deployment.ours if service != "robots")
    seen: list[tuple[str, str]] = []

    def all_up() -> bool:
        try:
            with urllib.request.urlopen("http://127.0.0.1:9091/api/v1/targets", timeout=5) as response:
                targets = json.loads(response.read())["data"]["activeTargets"]
            seen[:] = [(target["labels"]["job"], target["health"]) for target in targets]
        except OSError as error:
            seen[:] = [("prometheus", repr(error))]
        return sorted(job for job, health in seen if health == "up") == wanted

    polling.wait_until(all_up, seconds=90, pause=1.0, failure=lambda: str(seen))
    scene.say(f"prometheus: scrapes {len(wanted)} processes")


def test_no_message_is_lost_while_a_container_of_each_role_restarts(scene: Scene) -> None:
    business, webhook = scene.business, scene.webhook
    sent: list[str] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def send(first: int) -> None:
        count = first
        while not stop.wait(2 / RATE):
            try:
                sent.append(business.send(f"155501100{count % 20:02}", f"message {count}", 120))
            except BaseException as error:
                failed.append(error)
                return
            count += 2

    threads = [threading.Thread(target=send, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        for service in scene.deployment.restarted:
            begun = time.monotonic()
            before = len(sent)
            scene.project.restart(service)
            if service in scene.deployment.servers:
                scene.project.wait_healthy([service], 90)
            scene.say(f"restarted {service}: ready after {time.monotonic() - begun:.1f} s")
            # The next container is restarted when messages flow again.
            polling.wait_until(lambda target=before + 20: len(sent) >= target, seconds=60, failure=lambda: repr(failed))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []
    webhook.wait(lambda: all("read" in webhook.statuses().get(message, []) for message in sent), 120)
    ended = Counter(" ".join(webhook.statuses().get(message, [])) for message in sent)
    assert ended == {"sent delivered read": len(sent)}
    shown = Counter(json.loads(line).get("id") for line in _robots_log(scene).splitlines())
    assert {message: shown[message] for message in sent if shown[message] != 1} == {}
    scene.say(f"{len(sent)} messages meanwhile: all read, each shown once")


def _robots_log(scene: Scene) -> str:
    return scene.project.inside("robots", "cat", "/var/lib/tidings/robots.jsonl")


def test_containers_have_only_their_own_secrets_and_a_read_only_root(scene: Scene) -> None:
    own = {"robots": "handset"}
    for service in scene.deployment.ours:
        role = service.partition("-")[0]
        inside = scene.project.inside
        assert inside(service, "ls", "/var/lib/tidings/secrets").split() == [f"{own.get(role, role)}.json"]
        assert inside(service, "id", "-u").strip() == "10001"
        for path in ("/opt/tidings/x", "/x", *(("/var/lib/tidings/x",) if service != "robots" else ())):
            with pytest.raises(CommandFailed, match="Read-only file system"):
                inside(service, "touch", path)
        for program in ("gcc", "cc", "ld", "as"):
            with pytest.raises(CommandFailed):
                inside(service, "sh", "-c", f"command -v {program}")
        (capabilities,) = [line for line in inside(service, "cat", "/proc/1/status").splitlines() if "CapEff" in line]
        assert int(capabilities.split()[1], 16) == 0
    scene.say("containers: no root, no capability, no compiler, nothing writable but what they keep, no foreign secret")


def test_a_second_compose_up_changes_no_secret_and_restarts_nothing(scene: Scene) -> None:
    before = {
        service: scene.project.inside(service, "cat", "/proc/1/stat").split()[21] for service in scene.deployment.ours
    }
    scene.project.up()
    scene.project.wait_healthy(scene.deployment.servers)
    said = [line.split()[0] for line in scene.project.logs("provision").splitlines()]
    assert said.count("handed") == len(said) / 2, "the first run handed each its files, the second none"
    after = {
        service: scene.project.inside(service, "cat", "/proc/1/stat").split()[21] for service in scene.deployment.ours
    }
    assert after == before
    assert scene.business.login(PASSWORD)[0] == 200
    scene.say("a second `up`: no secret changed, no process stopped")


def test_keys_are_rotated_while_everything_runs(scene: Scene) -> None:
    coreapp = next(service for service in scene.deployment.ours if service.startswith("coreapp"))

    def keys(action: str) -> str:
        return scene.project.inside(coreapp, "tidings", "keys", action)

    def send() -> None:
        message = scene.business.send("15550110000", "under whichever key", 60)
        assert scene.webhook.wait(lambda: "read" in scene.webhook.statuses().get(message, []), 60)

    old = set(re.findall(r"current (\w+)", keys("status")))
    scene.project.run_again("provision", TIDINGS_NEW_KEYS="master,settings")
    send()
    rotated = keys("rotate")
    assert rotated.count("0 rows under another") == 2
    assert not old & set(re.findall(r"current (\w+)", rotated))
    send()
    # The command waits for work that was started under the old keys.
    with pytest.raises(CommandFailed, match="try again in"):
        keys("drop")
    time.sleep(rotation.SETTLING + 1)
    keys("drop")
    scene.project.run_again("provision", TIDINGS_DROP_KEYS=",".join(old))
    assert not [key for key in old if key in keys("status")]
    for service in [name for name in scene.deployment.ours if name.startswith(("coreapp", "webapp"))]:
        scene.project.restart(service)
        scene.project.wait_healthy([service], 90)
    send()
    scene.say("keys: new ones in the place of the old ones, and a start with these alone")
