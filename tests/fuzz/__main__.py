"""`make fuzz`: the whole system under schemathesis, stateful links and all checks that fit, for ten minutes."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import rig, run, verdict

RESULTS = Path("build") / "fuzz"


async def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--api", choices=sorted(run.APIS), default=run.V1.name)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    chosen = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidings-fuzz-") as directory:
        async with rig.running(Path(directory)) as target:
            api = run.APIS[chosen.api]
            where = f"{target.url}{api.document}"
            print(f"fuzzing {where} for {chosen.seconds} s with the seed {chosen.seed}", flush=True)
            outcome = await run.fuzz(
                Path(directory),
                target,
                chosen.seconds,
                [f"--seed={chosen.seed}"],
                lambda text: print(text, flush=True),
                api=api,
            )
            complaints = await verdict.complaints(target, outcome)
            held = ", ".join(f"{name} {peak / 2**20:.0f} MiB" for name, peak in verdict.peaks(target).items())
            complaints += [f"{operation} never succeeded" for operation in verdict.never_taken(outcome)]
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / f"report-{api.name}.txt"
    report.write_text(f"{outcome.output}\n{outcome.table()}\n")
    print(outcome.output if not outcome.passed else outcome.output[outcome.output.rfind("= SUMMARY =") :])
    print(outcome.table())
    print(f"held at most: {held}")
    for complaint in complaints:
        print(f"FAILED: {complaint}")
    print(f"{time.monotonic() - begun:.0f} s; the report is in {report}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
