"""A bare grpc.aio echo: every frame goes back as it came.

python -m reward_paths.echo_server
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from plaudit.reward.v1 import reward_service_pb2 as pb

METHOD = "/benchmark.Echo/Echo"
MESSAGE_BYTES = ("grpc.max_receive_message_length", 16 * 1024 * 1024)


async def _echo(frames: AsyncIterator[pb.ScoreRequest], context: object) -> AsyncIterator[pb.ScoreRequest]:
    async for frame in frames:
        yield frame


async def main() -> None:
    """Serves until stdin closes."""
    server = grpc.aio.server(options=[MESSAGE_BYTES])
    handler = grpc.stream_stream_rpc_method_handler(
        _echo, pb.ScoreRequest.FromString, pb.ScoreRequest.SerializeToString
    )
    service, method = METHOD.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"address": f"127.0.0.1:{port}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
