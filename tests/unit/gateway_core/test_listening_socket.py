"""The socket of the REST port."""

from __future__ import annotations

import socket

from gateway.server import _listening_socket


def test_what_is_written_is_sent_at_once() -> None:
    with _listening_socket("127.0.0.1:0") as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
