"""Limits and keepalive, equal on both sides and published in protos/README.md."""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Our own limit in both directions; gRPC's default of 4 MiB holds for servers that say nothing."""

KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000

MAX_METADATA_BYTES: Final = 64 * 1024
"""Headers and trailers: an error that names every wrong field stands in the trailers. gRPC's default for a
client is 8 KiB, and what is above is lost whole; `plaudit.rpc._errors` keeps below that."""

_COMMON: Final = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # Else a ping on a quiet stream counts as abuse after two, and the peer closes the connection.
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS: Final = (
    *_COMMON,
    # A server that was killed is back at once when it is back: the default backs off to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Services are dialled as they are named: an http_proxy in the environment is not for them.
    ("grpc.enable_http_proxy", 0),
    # Our own retries are the one layer.
    ("grpc.enable_retries", 0),
    # Two channels to one address must not share a dead connection.
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: Final = (
    *_COMMON,
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    # Two servers on one port would share its calls at random.
    ("grpc.so_reuseport", 0),
)
