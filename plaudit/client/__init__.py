"""The SDK: resources over the gateway."""
