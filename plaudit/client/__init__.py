"""The SDK: a client of the gateway, and what it returns."""

from plaudit.client import models
from plaudit.client._access import Tls
from plaudit.client._client import AsyncClient, Client
from plaudit.client._jobs import AsyncJob, Job

__all__ = ["AsyncClient", "AsyncJob", "Client", "Job", "Tls", "models"]
