"""The gateway's REST interface: routes convert, call the domain, and convert back."""

from gateway.rest.app import create_app

__all__ = ["create_app"]
