"""Plaudit: GRPO post-training of language models as gRPC services.

>>> from plaudit import Client
>>> client = Client()
>>> job = client.training_jobs.create(base_model="builtin:tiny", dataset_id="builtin:additions", ...)
"""

from plaudit.client import Client
from plaudit.errors import PlauditError

__version__ = "0.1.0"

__all__ = ["Client", "PlauditError", "__version__"]
