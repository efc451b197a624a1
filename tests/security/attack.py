"""Cost of an attack: measured from its start to its end, recorded, and compared with the limits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from harness import measure
from harness.processes import usage
from tests.security.bystanders import Waited
from tests.security.figures import Figures, Form
from tests.security.scene import Baseline, Target

MIB = 2**20
# Limits of what an unauthenticated client may cost a process and other callers.
MEMORY_MIB = 64.0
CPU_PERCENT = 5.0
DELAY_S = 1.0
# For the short form: CPU seconds for one-time costs, and the factor by which limits of time are wider because other
# tests run at the same time.
ONCE_S = 0.4
BESIDE_OTHERS = 3.0
# A wait may be longer than its limit by this many times the longest wait of the same callers without an attack, in the
# same run: other programs on the machine delay them, too.
SLOWER = 3.0
# Maximum duration of an attack, in seconds.
SECONDS = 180.0


class Strike:
    """Running attack, and after its end its cost."""

    def __init__(self, name: str, figures: Figures) -> None:
        self.name = name
        self.memory_mib = 0.0  # growth of the resident memory to its peak, in MiB
        self.cpu_percent = 0.0  # percent of one core, beyond the cost of the bystanders alone
        self.seconds = 0.0
        self.waited: dict[str, Waited] = {}  # by kind of bystander
        self._figures = figures
        self._started = time.perf_counter()

    async def last(self, seconds: float) -> None:
        """Wait until the attack has lasted this many seconds."""
        await asyncio.sleep(self._started + seconds - time.perf_counter())

    def figure(
        self, what: str, measured: float, limit: float | None, unit: str = "", *, at_least: bool = False
    ) -> None:
        """Record another figure of this attack. Raises `AssertionError` when it is beyond the limit."""
        self._figures.record(self.name, what, measured, limit, unit, at_least=at_least)


class Attack:
    """Factory of attacks on the processes of a target."""

    def __init__(self, target: Target, figures: Figures, form: Form) -> None:
        self._target = target
        self._figures = figures
        self._form = form

    @contextlib.asynccontextmanager
    async def __call__(
        self,
        name: str,
        *,
        on: str,
        others: Sequence[str],
        memory: float | None = MEMORY_MIB,
        cpu: float | None = CPU_PERCENT,
        delay: float | None = DELAY_S,
        refusals: int | None = 0,
    ) -> AsyncIterator[Strike]:
        """Measure an attack. Raises `AssertionError` at its end when it cost too much, or when the process was
        replaced."""
        pid = self._target.pid(on)
        before_it = await self._baseline(on, tuple(others))
        bystanders = self._target.bystanders
        if self._form.long:
            print(f"\n{name}, on {on} ...", flush=True)
        strike = Strike(name, self._figures)
        _forget_peak(pid)
        resident, before = psutil.Process(pid).memory_info().rss, usage(pid)
        await asyncio.to_thread(bystanders.begin, others)
        strike._started = started = time.perf_counter()
        try:
            async with asyncio.timeout(SECONDS):
                yield strike
        finally:
            strike.seconds = time.perf_counter() - started
            strike.waited = await asyncio.to_thread(bystanders.end)
        seconds = time.perf_counter() - started
        assert self._target.pid(on) == pid
        after = usage(pid)
        strike.memory_mib = (after.peak_rss - resident) / MIB
        share = (after.cpu - before.cpu) / seconds
        if cpu is not None and not self._form.long:
            cpu = cpu * BESIDE_OTHERS + ONCE_S / strike.seconds * 100
        usual = await self._usual(strike, share, on, cpu, delay, before_it)
        strike.cpu_percent = _percent(share, usual)
        self._note(strike, on, memory, cpu, delay, refusals, usual)

    async def _usual(
        self, strike: Strike, share: float, on: str, cpu: float | None, delay: float | None, usual: Baseline
    ) -> Baseline:
        """Return what the bystanders cost and how long they wait without an attack: `usual`, measured before this
        attack, or the larger one of before and after it where a limit was exceeded. The machine may have become slower.

        share: CPU seconds per second during the attack.
        """
        is_costly = cpu is not None and _percent(share, usual) > cpu
        is_slow = bool(delay) and any(
            measured > self._longest(delay, usual.longest[kind]) for kind, measured in _longest(strike.waited)
        )
        if not is_costly and not is_slow:
            return usual
        later = await self._measure_baseline(on, tuple(strike.waited))
        longest = {kind: max(usual.longest[kind], waited) for kind, waited in later.longest.items()}
        return Baseline(max(usual.cpu, later.cpu), longest)

    def _longest(self, delay: float, usual: float) -> float:
        """Return the limit of a wait, in seconds, for callers whose longest wait without an attack is `usual`."""
        return delay * self._form.pick(short=BESIDE_OTHERS, long=1.0) + SLOWER * usual

    def _note(
        self,
        strike: Strike,
        on: str,
        memory: float | None,
        cpu: float | None,
        delay: float | None,
        refusals: int | None,
        usual: Baseline,
    ) -> None:
        note, name = self._figures.note, strike.name
        noted = [
            note(name, f"memory of {on}", strike.memory_mib, memory, "MiB"),
            note(name, f"CPU of {on}", strike.cpu_percent, cpu, "%"),
        ]
        note(name, f"– of {on} without the attack", usual.cpu * 100, None, "%")
        for kind, longest in _longest(strike.waited):
            limit = self._longest(delay, usual.longest[kind]) if delay else delay
            noted.append(note(name, f"longest wait of {kind}", longest, limit, "s"))
            note(name, f"– of {kind} without the attack", usual.longest[kind], None, "s")
        for kind, waited in strike.waited.items():
            noted.append(note(name, f"refusals of {kind}", len(waited.refusals), refusals))
        beyond = [str(figure) for figure in noted if not figure.is_within]
        said = [text for waited in strike.waited.values() for text in waited.refusals[:3]]
        assert not beyond, "\n".join([*beyond, *said])

    async def _baseline(self, on: str, others: tuple[str, ...]) -> Baseline:
        """Return what these bystanders cost and how long they wait without an attack, measured once for each target."""
        baselines = self._target.baselines
        if (on, others) not in baselines:
            # One-time work of each kind (sessions, imports) is done in the first, shorter round.
            await self._measure_baseline(on, others, seconds=0.25)
            baselines[on, others] = await self._measure_baseline(on, others)
        return baselines[on, others]

    async def _measure_baseline(self, on: str, others: tuple[str, ...], *, seconds: float | None = None) -> Baseline:
        bystanders, pid = self._target.bystanders, self._target.pid(on)
        started, before = time.perf_counter(), usage(pid).cpu
        await asyncio.to_thread(bystanders.begin, others)
        await asyncio.sleep(seconds or self._form.pick(short=0.5, long=3.0))
        waited = await asyncio.to_thread(bystanders.end)
        share = (usage(pid).cpu - before) / (time.perf_counter() - started)
        return Baseline(share, dict(_longest(waited)))


def _percent(share: float, usual: Baseline) -> float:
    """Return percent of one core that an attack costs beyond its bystanders.

    share: CPU seconds per second of both.
    """
    return max(0.0, share - usual.cpu) * 100


def _longest(waited: Mapping[str, Waited]) -> Iterator[tuple[str, float]]:
    """Yield each kind of bystander with its longest wait, in seconds."""
    for kind, one in waited.items():
        yield kind, measure.percentiles(one.took)["max"]


def _forget_peak(pid: int) -> None:
    """Reset the kernel's peak of the resident memory. Where that fails, an older peak counts too."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
