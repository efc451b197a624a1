"""Minutes of load on real processes, with limits on rates, delays, memory and log volume.

`make test-load` runs them. Delays are compared with a baseline of the same run, so that a slow machine fails none.
Figures go to `build/reliability/figures.jsonl`.
"""
