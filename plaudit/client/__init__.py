"""The SDK: a client of the gateway, and what it returns."""

from plaudit.client import models
from plaudit.client._client import Client

__all__ = ["Client", "models"]
