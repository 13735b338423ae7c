"""Rules about what stands around the service: health, reflection, keepalive, and going away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Final

import grpc
import grpc.aio

from reward_service.conformance._faults import Fault
from reward_service.conformance._rule import Broken, Need, Skipped, optional
from reward_service.conformance._run import Run
from reward_service.conformance._talk import Late
from reward_service.conformance._wire import SERVICE_NAME

_PING_SECONDS: Final = 11
_QUIET_SECONDS: Final = 60.0
_COMMAND_SECONDS: Final = 60.0


@optional(
    "O02",
    "health",
    'grpc.health.v1.Health (service name "plaudit.reward.v1.RewardService")',
    "register your language's health service, and set SERVING for the service name and for the empty name",
    need=Need.NOTHING,
)
async def health(run: Run) -> str | None:
    """Health says SERVING for the service and for the whole server."""
    wrong = []
    for name in (SERVICE_NAME, ""):
        try:
            status = await run.wire.health(name, run.timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise Skipped("not implemented; clients poll GetServerInfo instead") from None
            status = error.code().name
        if status != "SERVING":
            wrong.append(f"{name or 'the empty name'}: {status}")
    if wrong:
        raise Broken("; ".join(wrong))
    return None


@optional(
    "O03",
    "reflection",
    "reflection; where health is UNIMPLEMENTED, clients poll GetServerInfo instead.",
    "register your language's reflection service with the name of the service",
    need=Need.NOTHING,
)
async def reflection(run: Run) -> str | None:
    """Reflection lists the service."""
    try:
        names = await run.wire.reflected_services(run.timeout)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped("not implemented") from None
        raise Broken(f"reflection ended with {error.code().name}") from None
    if SERVICE_NAME not in names:
        raise Broken(f"{SERVICE_NAME} is not among the services that are listed: {', '.join(names[:8])}")
    return None


@optional(
    "O26",
    "quiet-stream",
    "where your framework counts them as abuse, a quiet stream is closed after a minute.",
    "allow pings every 10 s, also without calls: protos/README.md says what to set in each language",
    patience=1e6,
)
async def quiet_stream(run: Run) -> str | None:
    """A stream on which nothing happens for a minute is not closed for its pings."""
    if run.settings.quick:
        raise Skipped("takes a minute; leave out --quick to check it")
    async with run.talk(wire=run.connect(ping_every_seconds=_PING_SECONDS)) as talk:
        await talk.open()
        with contextlib.suppress(Late):
            ending = await talk.ended("the end", _QUIET_SECONDS)
            raise talk.broken(f"the stream was closed while it was quiet: {ending}")
        batch = run.work.many(2)
        await talk.send(batch)
        await talk.settled(batch)
    return f"quiet for {_QUIET_SECONDS:g} s, a ping every {_PING_SECONDS} s"


@optional(
    "O28",
    "draining",
    "Announces shutdown: send no new batch, keep reading, then reconnect with the same session_id.",
    "on SIGTERM send draining on every stream, finish what was accepted, then end the streams with "
    "UNAVAILABLE",
)
async def draining(run: Run) -> str | None:
    """A server that is told to stop says so, and finishes what it accepted."""
    settings = run.settings
    if not settings.drain_command and settings.drain_pid is None:
        raise Skipped("give --drain-command or --drain-pid to check it")
    async with run.talk() as talk:
        await talk.open()
        finished, open_batch = run.work.many(2), run.work.many(64)
        await talk.send(finished)
        await talk.settled(finished)
        await talk.send(open_batch)
        await _tell_to_stop(settings.drain_command, settings.drain_pid)
        ledger = talk.ledger
        await talk.wait(lambda: ledger.draining or talk.ending is not None, "draining")
        await talk.ended("the end of the stream")
        if not ledger.draining:
            raise talk.broken(f"the stream ended with {talk.ending} without draining before it")
        if not ledger.entries[open_batch.batch_id].settled:
            raise talk.broken("a batch that was sent before was neither finished nor rejected")
        await run.sound(talk, but=(Fault.REJECTED,))
        assert talk.ending is not None
        if talk.ending.code is not grpc.StatusCode.UNAVAILABLE:
            raise talk.broken(f"the stream ended with {talk.ending}; UNAVAILABLE lets clients come back")
    return None


async def _tell_to_stop(command: str, pid: int | None) -> None:
    if pid is not None:
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError as error:
            raise Broken(f"process {pid} cannot be told to stop: {error.strerror}") from None
        return
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL)
    try:
        status = await asyncio.wait_for(process.wait(), _COMMAND_SECONDS)
    except TimeoutError:
        process.kill()
        raise Broken(f"the drain command did not end within {_COMMAND_SECONDS:g} s") from None
    if status:
        raise Broken(f"the drain command ended with status {status}")


OPTIONAL_RULES: Final = (health, reflection, quiet_stream, draining)
