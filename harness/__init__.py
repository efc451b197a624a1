"""What tests and benchmarks share: a whole installation as real processes, load on it, and its books.

An installation:

- `mariadb`: a private MariaDB server that may be killed, paused and restarted (`packages` installs its programs).
- `processes`: one process of Tidings as a child, started until it is ready, killed, measured; `spawn` sees that no
  child outlives us.
- `installation`: all four processes with their databases. Crash test, fuzzing, system tests and benchmarks run on it.
- `proxy`: a TCP proxy that is shut, so that what is behind it is there and cannot be reached.

Load, and what comes of it:

- `client`: a business that sends over the API as fast as it is told to, on connections of `http_connection`.
- `sink_process`: starts and asks `sink`, the webhook of that business in a process of its own; `webhook_body` reads
  bodies and checks their signatures.
- `fleet_process`: starts and asks `fleet`, devices by the ten thousand in a process of its own, each on a connection of
  its own (`fleet_device`, `fleet_sending`); `control`: how such a process is asked.
- `ledger`: balances what was sent, what recipients showed and what the webhook got.
- `measure`: rates and latencies, and one metric out of many; `metrics`: those of this process.
"""
