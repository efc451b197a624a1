"""The harness of all benchmarks: `README.md` says how a workload is written on it.

- `session`: a benchmark from its command line to its report.
- `run`: one measured run, and ratios of runs that took turns; `summary`: what many latencies come to.
- `sampler`: CPU, memory, queues and collections of garbage of the processes; `machine`: what others took of it.
- `stage`: an installation that returns to its prepared state before each run; `contents`: what is sent.
- `messages`: messages over the API, driven, awaited and reconciled, as a run.
- `calibration`: what the machine itself can do, beside which results are put.
- `report`, `plots`: JSON, Markdown and plots; `progress`: what is said meanwhile.
"""
