"""Where datasets come from that nobody uploads: the Hugging Face hub, or a file on the gateway's machine."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.access import SecretName
from plaudit.types.validation import parse_model

DEFAULT_SPLIT: Final = "train"

_FIELDS_OF: Final = {
    "hf": ("huggingface_dataset", ("huggingface_config",)),
    "path": ("path", ("format",)),
}
"""By source_type: the field that it needs, and those that it may have."""


class HuggingFaceConfig(BaseModel):
    """Which rows of a dataset of the hub, and under which names."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    split: str = Field(
        default=DEFAULT_SPLIT,
        pattern=r"^[\w.\-\[\]:%+]{1,128}$",
        description="Split of the dataset.",
        examples=["train"],
    )
    config_name: str | None = Field(
        default=None,
        pattern=r"^[\w.-]{1,128}$",
        description="Configuration (subset) of the dataset. null: its only or default one.",
        examples=["main"],
    )
    subset: str | None = Field(
        default=None,
        pattern=r"^[\w.-]{1,128}$",
        description="Another name of config_name.",
        examples=["main"],
    )
    column_mapping: dict[str, str] = Field(
        default_factory=dict,
        max_length=256,
        description='New names of columns, by those that they have: {"question": "prompt"}.',
        examples=[{"question": "prompt"}],
    )
    token: SecretName | None = Field(
        default=None,
        description="Name of the credential with which the gateway reads the dataset. null: none.",
        examples=["hub"],
    )


class DatasetSource(BaseModel):
    """Where the rows are."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source_type: Literal["hf", "path"] = Field(
        default="hf",
        description='"hf", a dataset of the Hugging Face hub, or "path", a file below a folder that the '
        "gateway's settings list.",
        examples=["hf"],
    )
    huggingface_dataset: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$",
        description="Id of the dataset on the hub.",
        examples=["openai/gsm8k"],
    )
    huggingface_config: HuggingFaceConfig = Field(
        default_factory=HuggingFaceConfig, description="Which rows of it.", examples=[{"split": "train"}]
    )
    path: str | None = Field(
        default=None,
        max_length=4096,
        description="Absolute path of a file of rows, as the gateway sees it.",
        examples=["/srv/data/additions.jsonl"],
    )
    format: Literal["jsonl", "json", "csv", "parquet"] | None = Field(
        default=None,
        description="Format of the file, as for uploads. null: told by how it begins, and CSV by its name.",
        examples=["jsonl"],
    )

    @property
    def uri(self) -> str:
        """The source as one address."""
        if self.source_type == "path":
            return f"file://{self.path}"
        return f"hf://datasets/{self.huggingface_dataset}"


def parse_dataset_source(data: object) -> DatasetSource:
    """Makes a source of JSON-like data, or raises InvalidArgumentError with every wrong field."""
    if isinstance(data, dict):
        data = {name: value for name, value in data.items() if value is not None}
    source = parse_model(DatasetSource, data)
    needed, optional = _FIELDS_OF[source.source_type]
    given: dict[str, Any] = data if isinstance(data, dict) else {}
    violations = [
        FieldViolation(name, f"has no meaning where source_type is {source.source_type}; leave it out")
        for fields in _FIELDS_OF.values()
        for name in (fields[0], *fields[1])
        if name in given and name not in (needed, *optional)
    ]
    if getattr(source, needed) is None:
        violations.append(FieldViolation(needed, f"is missing, and source_type is {source.source_type}"))
    config = source.huggingface_config
    if config.subset is not None and config.config_name not in (None, config.subset):
        violations.append(
            FieldViolation("huggingface_config.subset", "is config_name by another name; send one of the two")
        )
    names = list(config.column_mapping.values())
    violations += [
        FieldViolation(
            "huggingface_config.column_mapping", f"two columns would be named {name}; name each otherwise"
        )
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if violations:
        raise InvalidArgumentError(violations)
    if config.subset is None:
        return source
    one_name = config.model_copy(update={"config_name": config.subset, "subset": None})
    return source.model_copy(update={"huggingface_config": one_name})
