"""What every service process of ours does the same way: settings, logs, data directory, life and death."""

from plaudit.service._lifecycle import DataDirectory, exit_when_closed, run_service, unusable_folder
from plaudit.service._logging import configure_logging, get_logger
from plaudit.service._private_files import private_file, private_folder, private_opener
from plaudit.service._secrets import KeyPair, Secrets, check_private, read_key_pair
from plaudit.service._settings import (
    DEFAULT_ADDRESSES,
    ServiceSettings,
    config_file,
    configured,
    default_data_dir,
    default_secrets,
)
from plaudit.service._supervisor import ServiceCommand, Supervisor

__all__ = [
    "DEFAULT_ADDRESSES",
    "DataDirectory",
    "KeyPair",
    "Secrets",
    "ServiceCommand",
    "ServiceSettings",
    "Supervisor",
    "check_private",
    "config_file",
    "configure_logging",
    "configured",
    "default_data_dir",
    "default_secrets",
    "exit_when_closed",
    "get_logger",
    "private_file",
    "private_folder",
    "private_opener",
    "read_key_pair",
    "run_service",
    "unusable_folder",
]
