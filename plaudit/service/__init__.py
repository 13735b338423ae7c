"""What every service process of ours does the same way: settings, logs, data directory, life and death."""

from typing import TYPE_CHECKING

from plaudit._late_names import late_names

if TYPE_CHECKING:
    from plaudit.service._addresses import DEFAULT_ADDRESSES
    from plaudit.service._lifecycle import DataDirectory, exit_when_closed, run_service, unusable_folder
    from plaudit.service._logging import configure_logging, get_logger
    from plaudit.service._private_files import private_file, private_folder, private_opener
    from plaudit.service._secrets import KeyPair, Secrets, check_private, read_key_pair
    from plaudit.service._settings import (
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

if not TYPE_CHECKING:
    # structlog and pydantic-settings take longer to load than a command takes to print its help.
    __getattr__ = late_names(
        __name__,
        {
            "_addresses": ("DEFAULT_ADDRESSES",),
            "_lifecycle": ("DataDirectory", "exit_when_closed", "run_service", "unusable_folder"),
            "_logging": ("configure_logging", "get_logger"),
            "_private_files": ("private_file", "private_folder", "private_opener"),
            "_secrets": ("KeyPair", "Secrets", "check_private", "read_key_pair"),
            "_settings": (
                "ServiceSettings",
                "config_file",
                "configured",
                "default_data_dir",
                "default_secrets",
            ),
            "_supervisor": ("ServiceCommand", "Supervisor"),
        },
    )
