"""The rival's server: the reward behind FastAPI and uvicorn.

python -m reward_paths.http_server
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from reward_paths.work import length_share

app = FastAPI()


class Item(BaseModel):
    """A completion to score."""

    completion_id: str
    prompt: str
    answer: int
    text: str


class Request(BaseModel):
    """Completions of one call."""

    items: list[Item]


class Response(BaseModel):
    """Their values, in the order of the items."""

    values: list[float]


@app.post("/score")
async def score(request: Request) -> Response:
    """Scores the items of a call."""
    return Response(values=[length_share(item.text) for item in request.items])


class AnnouncingServer(uvicorn.Server):
    """Says where it listens, and ends with stdin.

    It makes its own socket: on one that is handed to it asyncio would leave Nagle's algorithm on.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens."""
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(json.dumps({"address": f"http://127.0.0.1:{port}"}), flush=True)
        asyncio.get_running_loop().run_in_executor(None, self._end_with_stdin)

    def _end_with_stdin(self) -> None:
        sys.stdin.read()
        self.should_exit = True


if __name__ == "__main__":
    AnnouncingServer(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", access_log=False)
    ).run()
