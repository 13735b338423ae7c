"""What answers at an address where no gRPC server does, told to whoever gave the address."""

from __future__ import annotations

import asyncio
import errno
import ssl

from plaudit.rpc import other_protocol
from reward_service.conformance._target import Target


async def what_answers(target: Target, seconds: float) -> str:
    """What is there, and the way out. It is asked by hand, for `seconds` at most for each question."""
    host, _, port = target.address.rpartition(":")
    place = host.strip("[]"), int(port)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(*place)
    except TimeoutError:
        return "no connection comes about; is the address right, and does a firewall let it through?"
    except OSError as error:
        # Of a name with several addresses each is told in the text alone.
        if f"[Errno {errno.ECONNREFUSED}]" in str(error):
            return "nothing listens there (connection refused); start the server, or give the port of its own"
        return f"no connection comes about ({error.strerror or error}); is the address right?"
    writer.transport.abort()
    if target.secure:
        return await _about_tls(target, *place, seconds)
    if await _shakes_hands(*place, seconds):
        return "it speaks TLS; give --tls, or --ca-file with the authority that signed its certificate"
    return await other_protocol(*place, seconds) or (
        "something listens there, and says nothing that gRPC or HTTP would; is it the reward server, and is "
        "it well?"
    )


async def _about_tls(target: Target, host: str, port: int, seconds: float) -> str:
    context = ssl.create_default_context(cafile=None if target.ca_file is None else str(target.ca_file))
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=target.server_name or host
            )
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is not taken ({error.verify_message}); give the authority that signed it with "
            "--ca-file, and with --server-name the name that stands in it"
        )
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return "it refuses the handshake of TLS; give --cert-file and --key-file where it asks who calls"
        return "it speaks no TLS; leave --tls and the certificates out"
    except (OSError, TimeoutError):
        return "it speaks no TLS; leave --tls and the certificates out"
    speaks_http2 = writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    writer.transport.abort()
    if speaks_http2:
        return "it speaks TLS, and hangs up; does it ask for a client certificate (--cert-file, --key-file)?"
    return "it speaks TLS without HTTP/2, so that it is no gRPC server; give the port of the reward server"


async def _shakes_hands(host: str, port: int, seconds: float) -> bool:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    # Nothing is sent here but hello.
    trusting.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=trusting)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True
