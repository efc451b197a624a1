"""Install a wheel with pipx, and send a message as the README describes. Needs only the standard library.

    first_message.py install PIPX WHEEL [CONSTRAINTS]    prints the installed packages as JSON
    first_message.py send DIRECTORY first|again          prints what happened as JSON

`send` runs `tidings up` in the directory. `first` expects an empty directory, changes the password and sets the
webhook; `again` expects the password and the webhook of an earlier run. Without other network namespaces it uses the
default ports of this machine.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

API = "http://127.0.0.1:9090"
RECIPIENT = "15550140001"
PASSWORD = "Tidings-2026!"
# Seconds: for the start of all processes, for the callbacks of one message, and for the stop.
START, CALLBACKS, STOP = 300.0, 120.0, 120.0
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


class Program:
    """Running program whose output is kept."""

    def __init__(self, *words: str, directory: Path) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            words, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._lines.append("(end of the output)")
            self._changed.notify_all()

    def wait_for(self, *words: str, seconds: float) -> str:
        """Return the first line that contains all words. Ends this program if there is none in time."""

        def find() -> str | None:
            return next((line for line in self._lines if all(word in line for word in words)), None)

        with self._changed:
            self._changed.wait_for(lambda: find() or "(end of the output)" in self._lines, seconds)
            if line := find():
                return line
            sys.exit(f"no line with {words} in:\n{''.join(self._lines)[-4000:]}")

    def stop(self) -> int:
        """Stop the program as Ctrl-C does. Returns its exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(STOP)

    def kill(self) -> None:
        self._process.kill()


@contextlib.contextmanager
def running(*words: str, directory: Path) -> Iterator[Program]:
    program = Program(*words, directory=directory)
    try:
        yield program
    finally:
        program.kill()


def call(method: str, path: str, body: Any, authorization: str) -> Any:
    """Return the response of the API."""
    headers = {"Content-Type": "application/json", "Authorization": authorization}
    request = urllib.request.Request(f"{API}{path}", json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def log_in(password: str, body: dict[str, str]) -> str:
    """Return the `Authorization` header of the token that the login gives."""
    credentials = base64.b64encode(f"admin:{password}".encode()).decode()
    response = call("POST", "/v1/users/login", body, f"Basic {credentials}")
    return f"Bearer {response['users'][0]['token']}"


def enable_loopback() -> None:
    """Enable the loopback interface of a new network namespace; without the right to do so, leave it."""
    with socket.socket() as any_socket, contextlib.suppress(PermissionError):
        flags = struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, flags)


def install(pipx: str, wheel: str, constraints: str = "") -> dict[str, Any]:
    """Install or replace Tidings. Returns its packages with their versions."""
    words = ["--pip-args", f"--constraint {constraints}"] if constraints else []
    subprocess.run([pipx, "install", "--force", *words, wheel], check=True, stdout=sys.stderr)
    frozen = subprocess.run([pipx, "runpip", "tidings", "freeze"], check=True, capture_output=True, text=True).stdout
    packages = dict(line.split("==") for line in frozen.splitlines() if "==" in line)
    version = subprocess.run(["tidings", "version"], check=True, capture_output=True, text=True).stdout.strip()
    return {"version": version, "packages": packages}


def send(directory: Path, which: str) -> dict[str, Any]:
    """Send a message through `tidings up` and wait for its callbacks. Returns the event lines of the message."""
    if which == "first" and any(directory.iterdir()):
        sys.exit(f"{directory} is not empty")
    enable_loopback()
    with (
        running("tidings", "up", directory=directory) as up,
        running("tidings", "listen", directory=directory) as heard,
    ):
        line = up.wait_for("is up, after", seconds=START)
        heard.wait_for("waiting for callbacks", seconds=START)
        if which == "first":
            token = log_in("secret", {"new_password": PASSWORD})
            settings = {"webhooks": {"url": "http://127.0.0.1:8800/"}, "sent_status": True}
            call("PATCH", "/v1/settings/application", settings, token)
        else:
            token = log_in(PASSWORD, {})
        words = f"Hello, {which}!"
        response = call("POST", "/v1/messages", {"to": RECIPIENT, "type": "text", "text": {"body": words}}, token)
        identity = response["messages"][0]["id"]
        reply = heard.wait_for(words, "text", seconds=CALLBACKS)
        statuses = [name for name in ("sent", "delivered", "read") if heard.wait_for(identity, name, seconds=CALLBACKS)]
        status = up.stop()
        up.wait_for("stopped", seconds=STOP)
    return {"up": line.strip(), "statuses": statuses, "reply": reply.strip(), "exit_status": status}


def main() -> None:
    command, *words = sys.argv[1:]
    found = install(*words) if command == "install" else send(Path(words[0]), words[1])
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    os.environ["PATH"] = f"{os.environ.get('PIPX_BIN_DIR', Path.home() / '.local' / 'bin')}:{os.environ['PATH']}"
    main()
