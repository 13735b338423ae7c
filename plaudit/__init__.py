"""Plaudit: GRPO post-training of language models as gRPC services.

>>> from plaudit import Client
>>> client = Client()
>>> job = client.training_jobs.create(base_model="builtin:tiny", dataset_id="builtin:additions", ...)
"""

from typing import TYPE_CHECKING, Any

from plaudit.errors import PlauditError

if TYPE_CHECKING:
    from plaudit.client import AsyncClient, Client

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "PlauditError", "__version__"]


def __getattr__(name: str) -> Any:
    # gRPC and the messages take a third of a second to load, which `plaudit --help` need not wait for.
    if name in ("Client", "AsyncClient"):
        from plaudit import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
