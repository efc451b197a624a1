"""Locust users as in the published performance report of the On-Premises API: a contacts call and a message, in a loop.

    locust -f benchmarks/locustfile.py --headless --users 4 --spawn-rate 4 --host http://127.0.0.1:9090

`make bench-seed000` runs it with everything that it needs. To run it alone, set these environment variables.
BENCH_WORK: a file with a line of JSON per message, `{"number": "15550110000", "body": "…"}`, where the body is that of
`POST /v1/messages`; each message is sent once, by any user. BENCH_TOKEN: a token of the API. BENCH_TURNS: a file that
gets a line per message with its position, status, id, start and duration.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
from locust import FastHttpUser, constant, events, task
from locust.exception import StopUser

# Statuses after which a client retries, and the delay in seconds.
BUSY, RETRY_SECONDS = (429, 503), 0.1


class Work:
    """Remaining messages, and the iterations made."""

    def __init__(self) -> None:
        lines = Path(os.environ["BENCH_WORK"]).read_text().splitlines()
        self.messages: Iterator[tuple[int, dict[str, str]]] = iter(list(enumerate(map(json.loads, lines))))
        self.turns: list[dict[str, Any]] = []
        self.finished = 0


@events.init.add_listener
def _load(environment: Any, **_: Any) -> None:
    environment.work = Work()


@events.test_stop.add_listener
def _write_down(environment: Any, **_: Any) -> None:
    path = os.environ.get("BENCH_TURNS")
    if path:
        Path(path).write_text("".join(json.dumps(turn) + "\n" for turn in environment.work.turns))


class Business(FastHttpUser):
    """Client of the report."""

    wait_time = constant(0)
    network_timeout = 60.0
    connection_timeout = 60.0

    def on_start(self) -> None:
        self.headers = {
            "Authorization": f"Bearer {os.environ['BENCH_TOKEN']}",
            "Content-Type": "application/json",
        }

    @task
    def turn(self) -> None:
        work = self.environment.work
        try:
            position, message = next(work.messages)
        except StopIteration:
            work.finished += 1
            if work.finished == self.environment.parsed_options.num_users:
                self.environment.runner.quit()
            raise StopUser from None
        check = json.dumps({"blocking": "wait", "contacts": ["+" + message["number"]]})
        _, contacts_took, refused = self._post_until_accepted(lambda: self._post("/v1/contacts", check, 200))
        started = time.time()
        response, took, again = self._post_until_accepted(lambda: self._post("/v1/messages", message["body"], 201))
        sent = response.status_code == 201
        work.turns.append(
            {
                "position": position,
                "status": response.status_code,
                "id": response.json()["messages"][0]["id"] if sent else "",
                "started": started,
                "took": took,
                "contacts_took": contacts_took,
                "refused": refused + again,
            }
        )
        if not sent:
            self.environment.process_exit_code = 1

    def _post(self, path: str, body: str, wanted: int) -> Any:
        with self.client.post(path, data=body, headers=self.headers, catch_response=True) as response:
            if response.status_code in (wanted, *BUSY):
                response.success()
            else:
                response.failure(f"status {response.status_code}")
            return response

    def _post_until_accepted(self, post: Callable[[], Any]) -> tuple[Any, float, int]:
        """Repeat a call while it is refused; return the final response, its seconds, and the number of refusals."""
        refused = 0
        while True:
            began = time.perf_counter()
            response = post()
            took = time.perf_counter() - began
            if response.status_code not in BUSY:
                return response, took, refused
            refused += 1
            gevent.sleep(RETRY_SECONDS)
