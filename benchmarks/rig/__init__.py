"""Harness of all benchmarks. `README.md` explains how to write a workload.

- `session`: a benchmark from its command line to its report.
- `run`: one measured run, and ratios of alternating runs; `summary`: statistics of latencies.
- `sampler`: CPU, memory, queues and garbage collections of the processes; `machine`: CPU used by other programs.
- `stage`: an installation that returns to its prepared state before each run; `contents`: messages to send.
- `messages`: messages over the API, driven, awaited and reconciled, as a run.
- `calibration`: the machine's own performance, for comparison with results.
- `report`, `figures`, `plots`: Markdown, small JSON, raw data and plots; `progress`: output during a run.
"""
