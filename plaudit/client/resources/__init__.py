"""The resources of the gateway, one a module."""
