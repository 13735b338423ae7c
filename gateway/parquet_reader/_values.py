"""Values of Parquet as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from gateway.parquet_reader._faults import WrongValueError


def json_value(value: Any) -> Any:
    """The value as JSON has it.

    Times become text (ISO 8601), decimals numbers where a number holds them exactly and else text, NaN null,
    since data frames write a missing number so. Raises WrongValueError for bytes and infinities.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):
                raise WrongValueError(f"the row holds {value}, which JSON does not have; write null or text")
            return None if math.isnan(value) else value
        case Mapping():
            return {str(name): json_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return _number(value)
        case UUID():
            return str(value)
    raise WrongValueError(
        f"the row holds {type(value).__name__} values, which JSON does not have; turn them into text"
    )


def _number(value: Decimal) -> int | float | str:
    if not value.is_finite():
        raise WrongValueError(f"the row holds {value}, which JSON does not have; write null or text")
    if value == value.to_integral_value() and abs(value.adjusted()) < 400:
        return int(value)
    as_float = float(value)
    return as_float if Decimal(repr(as_float)) == value else str(value)
