"""Asks the vulnerability service about the locked packages; says so when it cannot be asked."""

# ruff: noqa: T201

from __future__ import annotations

import json
import subprocess
import sys


def main(locks: list[str]) -> int:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "10"]
    for lock in locks:
        command += ["--requirement", lock]
    print("asking for known vulnerabilities ...", flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)  # noqa: S603
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        packages = []
    asked = [package for package in packages if "vulns" in package]
    if not asked:
        print("skipped: the vulnerability service cannot be reached from here")
        return 0
    bad = [(package, flaw) for package in asked for flaw in package["vulns"]]
    for package, flaw in bad:
        fixed = ", ".join(flaw["fix_versions"]) or "nothing yet"
        print(f"{package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    print(f"{len(asked)} packages asked for, {len(packages) - len(asked)} unknown to the service, {len(bad)} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
