"""How Plaudit speaks gRPC: servers, channels, and the one mapping between our errors and statuses."""

from typing import TYPE_CHECKING

from plaudit._late_names import late_names

if TYPE_CHECKING:
    from plaudit.rpc._access import Credentials, LoadCredentials, Metadata, SecuredChannel
    from plaudit.rpc._channels import open_channel, open_sync_channel
    from plaudit.rpc._durations import LONGEST_DURATION_SECONDS, duration_seconds, is_duration
    from plaudit.rpc._errors import NO_FIELD, error_from_rpc, status_of
    from plaudit.rpc._interceptors import ErrorInterceptor
    from plaudit.rpc._listening import ListenSecurity, ListenTls, checked_listen_address
    from plaudit.rpc._options import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES
    from plaudit.rpc._other_protocols import other_protocol
    from plaudit.rpc._resolving import Endpoint, ForbiddenAddressError, resolve
    from plaudit.rpc._serving import GrpcServer
    from plaudit.rpc._times import time_of

__all__ = [
    "CHANNEL_OPTIONS",
    "LONGEST_DURATION_SECONDS",
    "MAX_MESSAGE_BYTES",
    "NO_FIELD",
    "Credentials",
    "Endpoint",
    "ErrorInterceptor",
    "ForbiddenAddressError",
    "GrpcServer",
    "ListenSecurity",
    "ListenTls",
    "LoadCredentials",
    "Metadata",
    "SecuredChannel",
    "checked_listen_address",
    "duration_seconds",
    "error_from_rpc",
    "is_duration",
    "open_channel",
    "open_sync_channel",
    "other_protocol",
    "resolve",
    "status_of",
    "time_of",
]

if not TYPE_CHECKING:
    # A client needs none of a server's modules, and no settings.
    __getattr__ = late_names(
        __name__,
        {
            "_access": ("Credentials", "LoadCredentials", "Metadata", "SecuredChannel"),
            "_channels": ("open_channel", "open_sync_channel"),
            "_durations": ("LONGEST_DURATION_SECONDS", "duration_seconds", "is_duration"),
            "_errors": ("NO_FIELD", "error_from_rpc", "status_of"),
            "_interceptors": ("ErrorInterceptor",),
            "_listening": ("ListenSecurity", "ListenTls", "checked_listen_address"),
            "_options": ("CHANNEL_OPTIONS", "MAX_MESSAGE_BYTES"),
            "_other_protocols": ("other_protocol",),
            "_resolving": ("Endpoint", "ForbiddenAddressError", "resolve"),
            "_serving": ("GrpcServer",),
            "_times": ("time_of",),
        },
    )
