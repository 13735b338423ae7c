"""The files of `plaudit init`. What the job file says of a field comes from `plaudit.types`: it is true."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from plaudit.cli._toml import toml_value

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

STARTER_HYPERPARAMETERS: Final[Mapping[str, Any]] = {
    "learning_rate": 2e-4,
    "max_steps": 150,
    "global_batch_size": 64,
    "lora_rank": 16,
    "lora_alpha": 32,
    "rollouts_per_prompt": 8,
    "max_response_length": 16,
}
"""What lets the embedded tiny model learn to add within two minutes on a CPU."""

_WIDTH: Final = 100
_SUMS: Final = ((7, 12), (3, 9), (15, 4), (0, 18), (11, 11), (6, 13), (19, 2), (8, 8))

_HEAD: Final = """\
# A training job, which runs as it stands:  plaudit job submit job.toml --watch
# Every field is here. One that begins with # has its default, or an example where there is none.
#
# With data of your own:      plaudit dataset upload rows.jsonl           then dataset_id = "rows"
# With a reward of your own:  plaudit reward test reward.py --data rows.jsonl
#                             plaudit reward-function upload reward.py    then, above [hyperparameters],
#                             reward_function_id = "reward", and no [[rewards]]

"""

_REWARDS: Final = """
# What is reinforced: the weighted sum of all [[rewards]]. `plaudit reward list` shows what there is.
"""

REWARD_FILE: Final = '''\
"""A reward of your own. To try it: plaudit reward test reward.py --data rows.jsonl"""

import re


def reward(prompts, completions, answer, **columns):
    """1 for a completion whose <answer> is the row's, 0.1 for another number in the tag, else 0.

    `answer` is a column of the rows, and so would be any other argument. One value a completion; None where
    the reward does not apply.
    """
    return [_score(text, str(right)) for text, right in zip(completions, answer)]


def _score(text, right):
    found = re.search(r"<answer>\\s*(-?\\d+)\\s*</answer>", text)
    if found is None:
        return 0.0
    return 1.0 if found[1] == right else 0.1
'''


def starter_files() -> Mapping[str, str]:
    """The texts of the files by their names."""
    return {"job.toml": job_file(), "rows.jsonl": rows_file(), "reward.py": REWARD_FILE}


def job_file() -> str:
    """A job file that names every field, with its meaning and its default."""
    from plaudit.types.hyperparameters import GrpoHyperparameters
    from plaudit.types.jobs import RewardBinding, TrainingJobSpec

    spec = TrainingJobSpec.model_fields
    given: Mapping[str, Any] = {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
    }
    binding: Mapping[str, Any] = {"server": "builtin", "reward": "exact_answer"}
    parts = [_HEAD]
    parts += _told(spec, given, leave_out={"hyperparameters", "rewards"})
    parts += ["\n[hyperparameters]\n", *_told(GrpoHyperparameters.model_fields, STARTER_HYPERPARAMETERS)]
    parts += [_REWARDS, "[[rewards]]\n", *_told(RewardBinding.model_fields, binding)]
    return "".join(parts)


def rows_file() -> str:
    """Rows of small additions: a prompt, and the answer as a column for the rewards."""
    rows = ({"prompt": f"What is {a} + {b}?", "answer": a + b} for a, b in _SUMS)
    return "".join(json.dumps(row) + "\n" for row in rows)


def _told(
    fields: Mapping[str, FieldInfo],
    given: Mapping[str, Any],
    leave_out: Set[str] = frozenset(),
) -> Iterator[str]:
    for name, field in fields.items():
        if name in leave_out:
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        meaning = (field.description or "").replace("null:", "Not set:")
        if not field.is_required() and default is not None:
            meaning += f" Default: {toml_value(default)}."
        yield "\n".join(textwrap.wrap(meaning, _WIDTH, initial_indent="# ", subsequent_indent="#   ")) + "\n"
        if name in given:
            yield f"{name} = {toml_value(given[name])}\n"
        else:
            value = next(iter(field.examples or ()), None) if default is None else default
            yield f"# {name} = {toml_value(value)}\n" if value is not None else f"# {name} is not set\n"
