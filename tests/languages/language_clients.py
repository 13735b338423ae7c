"""The clients of examples/clients: how they are built, and what each is put through against real services."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from language_servers import BUILD_SECONDS, EXAMPLES, environment, run
from stack import Stack

CLIENTS: Final = EXAMPLES / "clients"
STEPS: Final = 4
CLIENT_SECONDS: Final = 180.0
_CUT_AT: Final = b"reward_mean"
"""The first metrics of a job: the connection that brings them is cut before they arrive."""


@dataclass(frozen=True)
class LanguageClient:
    """A client in one language. Commands run in its folder; `rest` watches over REST, where there is one."""

    name: str
    build: tuple[str, ...]
    run: tuple[str, ...]
    rest: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its sources lie."""
        return CLIENTS / self.name


LANGUAGE_CLIENTS: Final = {
    client.name: client
    for client in (
        LanguageClient(
            "node",
            ("npm ci --ignore-scripts --no-audit --no-fund --loglevel=error", "npm run --silent build"),
            ("node", "dist/main.js"),
            ("node", "dist/watch_rest.js"),
        ),
        LanguageClient("go", ("./build.sh",), ("./train-and-watch",)),
    )
}


def build_client(client: LanguageClient) -> None:
    """Builds the client, as its README says."""
    for command in client.build:
        run(command, client.folder, BUILD_SECONDS)


async def check_client(client: LanguageClient, stack: Stack, folder: Path) -> str:
    """It creates a job and prints each step once, over a connection that is cut; it goes on from a cursor; it
    tells what is refused. Returns what was seen.
    """
    job = json.loads((CLIENTS / "adder.json").read_text())
    job["hyperparameters"] |= {"max_steps": STEPS, "global_batch_size": 16}
    job_file = folder / f"{client.name}.json"
    job_file.write_text(json.dumps(job))

    async with _cut_once(stack.grpc_address) as address:
        code, told, complaint = await _client(client, client.run, "--address", address, str(job_file))
    assert (code, "the stream broke" in complaint) == (0, True), f"{told}\n{complaint}\n{stack.logs()}"
    assert _steps(told) == list(range(1, STEPS + 1)), told
    assert _each_once(told), told
    assert all(re.search(r"reward_mean -?\d.*loss -?\d", line) for line in told if line.startswith("step "))
    assert told[-1].startswith("status completed"), told
    job_id = told[0].removeprefix("job ")

    cursor = _cursor_of_step(told, 2)
    again = ("--address", stack.grpc_address, "--job", job_id, "--after", cursor)
    code, rest, complaint = await _client(client, client.run, *again)
    assert (code, _steps(rest), complaint) == (0, list(range(3, STEPS + 1)), ""), f"{rest}\n{complaint}"

    if client.rest:
        async with _cut_once(stack.http_url.removeprefix("http://")) as address:
            url = ("--url", f"http://{address}", "--job", job_id)
            code, over_rest, complaint = await _client(client, client.rest, *url)
        assert (code, _steps(over_rest)) == (0, list(range(1, STEPS + 1))), f"{over_rest}\n{complaint}"
        assert _each_once(over_rest), over_rest
        assert _cursor_of_step(over_rest, 2) == cursor

    # Every field of a job travels, so that the gateway can refuse it.
    wrong = {"output_name": "", "resume_from": "job_x@y", "preflight": "perhaps"}
    reward = {**job["rewards"][0], "timeout_seconds": 0, "max_attempts": 1000, "retry_seconds": 0}
    job_file.write_text(json.dumps({**job, **wrong, "rewards": [reward]}))
    code, _, complaint = await _client(client, client.run, "--address", stack.grpc_address, str(job_file))
    fields = (
        *wrong,
        *(f"rewards[0].{name}" for name in ("timeout_seconds", "max_attempts", "retry_seconds")),
    )
    assert (code, [field for field in fields if field not in complaint]) == (2, []), complaint
    return f"client: {STEPS} steps once each, over a cut"


async def _client(
    client: LanguageClient, command: Sequence[str], *arguments: str
) -> tuple[int | None, list[str], str]:
    """Exit status, lines of stdout, and stderr. No token is asked for; one travels all the same."""
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        cwd=client.folder,
        env={**environment(), "PLAUDIT_TOKEN": "vk_anything"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(CLIENT_SECONDS):
            stdout, stderr = await process.communicate()
    except BaseException:
        process.kill()
        raise
    return process.returncode, stdout.decode().splitlines(), stderr.decode()


def _steps(lines: Sequence[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.match(r"step (\d+)", line))]


def _each_once(lines: Sequence[str]) -> bool:
    """Whether no event was told twice, and some came before the cut."""
    cursors = [found[1] for line in lines if (found := re.search(r"\[(.+)\]$", line))]
    return len(set(cursors)) == len(cursors) > STEPS


def _cursor_of_step(lines: Sequence[str], step: int) -> str:
    line = next(line for line in lines if re.match(rf"step {step}\b", line))
    return re.findall(r"\[(.+)\]$", line)[0]


@asynccontextmanager
async def _cut_once(target: str) -> AsyncIterator[str]:
    """Leads to HOST:PORT, and cuts the connection that first brings the metrics of a step, before it does."""
    was_cut = False

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        nonlocal was_cut
        while data := await source.read(65_536):
            cut_at = -1 if was_cut else data.find(_CUT_AT)
            sink.write(data if cut_at < 0 else data[:cut_at])
            await sink.drain()
            if cut_at >= 0:
                was_cut = True
                return

    async def serve(near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        far_in, far_out = await asyncio.open_connection(*target.rsplit(":", 1))
        ways = [asyncio.create_task(pump(near_in, far_out)), asyncio.create_task(pump(far_in, near_out))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        near_out.close()
        far_out.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert was_cut, "no metrics came through"
