"""Harness shared by tests and benchmarks: a whole installation as real processes, load on it, and a ledger.

An installation:

- `mariadb`: a private MariaDB server that can be killed, paused and restarted (`packages` installs its programs).
- `processes`: one process of Tidings as a child, started until it is ready, killed, measured; `spawn` ensures that no
  child outlives its parent.
- `installation`: all four processes with their databases. Crash test, fuzzing, system tests and benchmarks use it.
- `proxy`: a TCP proxy that can be shut, so that the server behind it runs and cannot be reached.

Load and its results:

- `client`: a business that sends over the API at a given load, on connections of `http_connection`.
- `sink_process`: starts and queries `sink`, the business's webhook in a separate process; `webhook_body` decodes
  bodies and checks their signatures.
- `fleet_process`: starts and queries `fleet`, tens of thousands of devices in one process, each on a separate
  connection (`fleet_device`, `fleet_sending`); `control` carries the requests to such a process.
- `ledger`: reconciles the messages sent, those that recipients showed and those that the webhook received.
- `measure`: rates and latencies, and single metrics of a scrape; `metrics`: those of this process.
"""
