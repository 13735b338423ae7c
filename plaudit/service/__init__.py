"""What every service process of ours does the same way: settings, logs, data directory, life and death."""

from plaudit.service._lifecycle import DataDirectory, exit_when_closed, run_service, unusable_folder
from plaudit.service._logging import configure_logging
from plaudit.service._settings import DEFAULT_ADDRESSES, ServiceSettings, configured, default_data_dir

__all__ = [
    "DEFAULT_ADDRESSES",
    "DataDirectory",
    "ServiceSettings",
    "configure_logging",
    "configured",
    "default_data_dir",
    "exit_when_closed",
    "run_service",
    "unusable_folder",
]
