"""Containers of one compose file, by the names of their services."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import yaml

from harness import polling
from tests.deploy.podman import CommandFailed, Podman

# Seconds from `up` to the last container that is ready.
START_SECONDS = 180.0
PROFILES = {"robots"}


class Project:
    """Containers from `up` to `down`."""

    def __init__(self, podman: Podman, file: Path, variables: Mapping[str, str], *overrides: Path) -> None:
        self._podman = podman
        self._file = file
        self._files = (file, *overrides)
        self._variables = variables

    def up(self) -> None:
        """Start each service when its dependencies have the required state.

        podman-compose starts one at a time: the podman of Debian 12 does not know the condition `service_healthy`, and
        does not start a service that depends on a container that has ended.
        """
        services = yaml.safe_load(self._file.read_text())["services"]
        waiting = {name: service for name, service in services.items() if set(service.get("profiles", ())) <= PROFILES}
        while waiting:
            name = next(
                name for name, service in waiting.items() if not waiting.keys() & service.get("depends_on", {}).keys()
            )
            for dependency, condition in waiting.pop(name).get("depends_on", {}).items():
                self._wait_for(dependency, condition["condition"])
            self.add(name)
        met = [name for name, service in services.items() if "default" in service.get("networks", ("default",))]
        self._wait_known(set(met) & set(self._running()))

    def _running(self) -> list[str]:
        found = json.loads(self._podman("ps", "--format", "json"))
        return [container["Labels"]["com.docker.compose.service"] for container in found]

    def _wait_known(self, services: Collection[str]) -> None:
        """Wait until each service resolves the names of the others. Raises `TimeoutError`.

        The name server of Debian 12's podman (aardvark-dns 1.4) loses updates while it reloads its list, which it does
        whenever a container starts. Missing names are sent to it again.
        """
        missing: list[str] = []

        def all_known() -> bool:
            missing[:] = [name for name in services if not self._is_known(name)]
            for name in missing:
                self._podman("network", "reload", self.container(name))
            return not missing

        polling.wait_until(all_known, seconds=60, pause=1.0, failure=lambda: f"nobody knows the names {missing}")

    def _is_known(self, name: str) -> bool:
        try:
            self.inside("robots", "getent", "hosts", name)
        except CommandFailed:
            return False
        return True

    def add(self, service: str) -> None:
        """Start one more service without its dependencies."""
        self._compose("up", "--detach", "--no-build", "--no-deps", service)

    def scale(self, service: str, count: int) -> None:
        """Start or remove containers of a service until it has `count`."""
        self._compose("up", "--detach", "--no-build", "--no-deps", "--scale", f"{service}={count}", service)

    def _wait_for(self, service: str, condition: str) -> None:
        if condition == "service_healthy":
            self.wait_healthy([service])
        elif condition == "service_completed_successfully":
            status = self._podman("wait", self.container(service)).strip()
            if status != "0":
                raise CommandFailed(f"{service} ended with status {status}: {self.logs(service)[-1500:]}")
        else:
            raise AssertionError(condition)

    def remove(self, service: str) -> None:
        """Remove all containers of a service."""
        words = ("ps", "--all", "--filter", f"label=com.docker.compose.service={service}", "--format", "{{.Names}}")
        for name in self._podman(*words).split():
            self._podman("rm", "--force", "--time=30", name)

    def down(self) -> None:
        self._compose("down", "--volumes")

    def _compose(self, *words: str) -> str:
        return self._podman.compose(self._files, *words, variables=self._variables)

    def run_again(self, service: str, **variables: str) -> str:
        """Run a one-time service while the others run, and return its output."""
        words = ("run", "--rm", "--no-deps", service)
        return self._podman.compose(self._files, *words, variables={**self._variables, **variables})

    def container(self, service: str) -> str:
        """Return the name of a service's container."""
        words = ("ps", "--all", "--filter", f"label=com.docker.compose.service={service}", "--format", "{{.Names}}")
        (name,) = self._podman(*words).split()
        return name

    def inside(self, service: str, *command: str) -> str:
        """Run a command in a container and return its output. Raises `CommandFailed`."""
        return self._podman("exec", self.container(service), *command)

    def logs(self, service: str) -> str:
        return self._podman("logs", self.container(service), both=True)

    def restart(self, service: str) -> None:
        self._podman("restart", "--time=30", self.container(service))

    def is_healthy(self, service: str) -> bool:
        """Return whether the health check succeeds now."""
        try:
            self._podman("healthcheck", "run", self.container(service))
        except CommandFailed:
            return False
        return True

    def wait_healthy(self, services: Iterable[str], seconds: float = START_SECONDS) -> None:
        """Wait until each service was healthy once. Raises `TimeoutError`."""
        waiting = list(services)

        def all_healthy() -> bool:
            waiting[:] = [service for service in waiting if not self.is_healthy(service)]
            return not waiting

        def failure() -> str:
            said = {service: self.logs(service)[-1500:] for service in waiting}
            return f"not healthy after {seconds:.0f} s: {json.dumps(said, indent=1)}"

        polling.wait_until(all_healthy, seconds=seconds, pause=0.5, failure=failure)

    def image_settings(self, service: str) -> Mapping[str, object]:
        """Return the settings of the service's container."""
        (found,) = json.loads(self._podman("inspect", self.container(service)))
        settings: Mapping[str, object] = found
        return settings


def leftovers(podman: Podman) -> list[str]:
    """Return containers, volumes and networks, except podman's default network."""
    found = podman("ps", "--all", "--quiet").split() + podman("volume", "ls", "--quiet").split()
    return found + [name for name in podman("network", "ls", "--quiet").split() if name != "podman"]
