"""Plaudit: GRPO post-training of language models as gRPC services."""
