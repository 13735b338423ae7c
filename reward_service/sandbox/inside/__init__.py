"""What runs inside the sandbox, beside the reward code. Standard library only.

The folder is mounted alone, as a package of its own called `inside`, so its modules import one another
relatively and nothing of the service's.
"""

from .loop import main

__all__ = ["main"]
