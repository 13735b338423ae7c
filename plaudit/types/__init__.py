"""The vocabulary of Plaudit: fields, defaults and rules, written down once.

gRPC, REST, CLI, SDK, gateway and trainer all validate through these models, so that an error names the same
field in the same words everywhere. No protobuf, no HTTP, no torch.
"""
