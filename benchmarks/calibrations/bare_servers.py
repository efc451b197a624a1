"""Minimal servers for calibrations: `python -m benchmarks.calibrations.bare_servers fastapi|echo PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal, cast

import pydantic
import uvicorn
import uvloop
from fastapi import FastAPI

app = FastAPI(openapi_url=None)


class Text(pydantic.BaseModel):
    body: str = pydantic.Field(min_length=1, max_length=4096)


class Message(pydantic.BaseModel):
    to: str
    type: Literal["text"]
    recipient_type: Literal["individual"] = "individual"
    preview_url: bool = False
    text: Text


class Accepted(pydantic.BaseModel):
    messages: list[dict[str, str]]


@app.post("/v1/messages", status_code=201)
async def send(message: Message) -> Accepted:
    """Validate the body of a text message, and respond with an id."""
    return Accepted(messages=[{"id": f"gBEGkYiEB1VXAglK1ZEqA1YKPrU{message.to}"}])


class Echo(asyncio.Protocol):
    """Protocol that sends back whatever it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def echo(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "echo":
        uvloop.run(echo(port))
    else:
        uvicorn.run(
            app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning"
        )


if __name__ == "__main__":
    main()
