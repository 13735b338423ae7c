"""The gateway's REST interface: routes convert, call the domain, and convert back."""

from gateway.rest.app import create_app
from gateway.rest.guard import Hosts

__all__ = ["Hosts", "create_app"]
