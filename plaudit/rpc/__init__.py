"""How Plaudit speaks gRPC: servers, channels, and the one mapping between our errors and statuses."""

from plaudit.rpc._access import Credentials, LoadCredentials, Metadata, SecuredChannel
from plaudit.rpc._channels import open_channel, open_sync_channel
from plaudit.rpc._errors import error_from_rpc, status_of
from plaudit.rpc._interceptors import ErrorInterceptor
from plaudit.rpc._listening import ListenSecurity, ListenTls, checked_listen_address
from plaudit.rpc._options import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES
from plaudit.rpc._resolving import Endpoint, ForbiddenAddressError, resolve
from plaudit.rpc._serving import GrpcServer

__all__ = [
    "CHANNEL_OPTIONS",
    "MAX_MESSAGE_BYTES",
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
    "error_from_rpc",
    "open_channel",
    "open_sync_channel",
    "resolve",
    "status_of",
]
