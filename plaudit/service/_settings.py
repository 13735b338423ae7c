"""Settings of a service: its section of plaudit.toml, then PLAUDIT_ variables, which win."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.service._secrets import Secrets
from plaudit.types.validation import shown, violations_of

_SECTIONS: Final = ("gateway", "trainer", "reward")
_SHARED: Final = ("data_dir", "secrets_dir")
"""Settings of all services, which stand above the sections."""


def default_data_dir() -> Path:
    """Where services keep their state by default.

    PLAUDIT_DATA_DIR, or data_dir of the configuration file, or a folder of the user's own.
    """
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    configured = _document().get("data_dir", f"{base}/plaudit")
    if not isinstance(configured, str):
        raise InvalidArgumentError.of("data_dir", f"{shown(configured)} in {config_file()} must be a text")
    return Path(os.environ.get("PLAUDIT_DATA_DIR") or configured).expanduser()


def _default_secrets_dir() -> Path | None:
    folder = os.environ.get("PLAUDIT_SECRETS_DIR") or _document().get("secrets_dir")
    if folder is None:
        return None
    if not isinstance(folder, str):
        raise InvalidArgumentError.of("secrets_dir", f"{shown(folder)} in {config_file()} must be a text")
    return Path(folder).expanduser()


def default_secrets() -> Secrets:
    """Secrets of a command on this machine: PLAUDIT_SECRETS_DIR, or secrets_dir of the configuration file, or
    the folder `secrets` below the data directory.
    """
    return Secrets(_default_secrets_dir() or default_data_dir() / "secrets")


def config_file() -> Path:
    """The configuration file: PLAUDIT_CONFIG, else plaudit.toml in the working directory, if there is one."""
    return Path(os.environ.get("PLAUDIT_CONFIG") or "plaudit.toml")


def configured(section: str, name: str) -> Any:
    """A setting of another service as it is written: its variable, else the file, else None. Not checked.

    For who starts that service and must not take a setting away from it.
    """
    variable = os.environ.get(f"PLAUDIT_{section.upper()}_{name.upper()}")
    if variable is None:
        table = _document().get(section)
        return table.get(name) if isinstance(table, dict) else None
    try:
        return json.loads(variable)
    except ValueError:
        return variable


class ServiceSettings(BaseSettings):
    """Base of a service's settings.

    A subclass names its `section` of plaudit.toml; the variable of a field is PLAUDIT_{SECTION}_{FIELD}.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    section: ClassVar[str]

    data_dir: Path = Field(
        default_factory=default_data_dir, description="Folder of all state on this machine."
    )
    secrets_dir: Path | None = Field(
        default_factory=_default_secrets_dir,
        description="Folder of tokens, CAs and client certificates, by name. null: secrets under data_dir.",
        examples=["/etc/plaudit/secrets"],
    )
    log_level: str = Field(
        default="info", pattern="^(debug|info|warning|error)$", description="Least level logged."
    )

    @property
    def secrets(self) -> Secrets:
        """The secrets of this service, by name."""
        folder = self.secrets_dir or self.data_dir / "secrets"
        return Secrets(folder.expanduser().resolve())

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.model_config = SettingsConfigDict(
            **{**cls.model_config, "env_prefix": f"PLAUDIT_{cls.section.upper()}_"}
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line first, then environment, then plaudit.toml."""
        return init_settings, env_settings, _SectionSource(settings_cls, cls.section)

    @classmethod
    def load(cls, **given: object) -> Self:
        """Reads the settings; `given` (from the command line) wins where it is not None."""
        violations = list(cls._unknown_variables())
        try:
            settings = cls(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # checked by pydantic, by name
        except ValidationError as error:
            violations.extend(violations_of(error, cls, prefix=cls.section))
        if violations:
            raise InvalidArgumentError(violations)
        return settings

    @classmethod
    def _unknown_variables(cls) -> Iterator[FieldViolation]:
        prefix = f"PLAUDIT_{cls.section.upper()}_"
        for name in os.environ:
            if name.startswith(prefix) and name.removeprefix(prefix).lower() not in cls.model_fields:
                # Without its value, which may be a secret that was meant for somebody else.
                yield FieldViolation(name, "there is no such setting; unset it")


class _SectionSource(PydanticBaseSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], section: str) -> None:
        super().__init__(settings_cls)
        self._section = section

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """Not used: the section is read as a whole, so that unknown names in it are refused too."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        document = _document()
        unknown = [name for name in document if name not in {*_SHARED, self._section, *_SECTIONS}]
        if unknown:
            known = f"{', '.join(_SHARED)} and the sections {', '.join(_SECTIONS)}"
            fault = f"in {config_file()}: there is no such name; {known} may stand there"
            raise InvalidArgumentError([FieldViolation(name, fault) for name in unknown])
        section = document.get(self._section, {})
        if not isinstance(section, dict):
            raise InvalidArgumentError.of(
                self._section, f"in {config_file()} must be a table: [{self._section}]"
            )
        if "data_dir" in document:
            section = {"data_dir": document["data_dir"], **section}
        if os.environ.get("PLAUDIT_DATA_DIR"):
            section = {name: value for name, value in section.items() if name != "data_dir"}
        return section


def _document() -> dict[str, Any]:
    path = config_file()
    if not path.exists():
        if os.environ.get("PLAUDIT_CONFIG"):
            raise InvalidArgumentError.of(
                "PLAUDIT_CONFIG", f"{shown(str(path))}: there is no such file; mend the path, or unset it"
            )
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgumentError.of(
            str(path), f"cannot be read ({error}); mend it, or move it away"
        ) from None
