"""Prompt, columns, completion and reward of a training step belong to one another, and nothing is forked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator

import pyarrow.parquet as pq
import torch
from run_harness import RunHere, make_start, write_dataset

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import RewardBinding
from plaudit.types.statuses import RunState
from reward_service import Item, RewardServer, reward
from trainer_service.journal import CompletionsWritten
from trainer_service.training.models import end_token_ids, load_policy
from trainer_service.training.rollout import RolloutSettings, roll_out
from trainer_service.training.sampling import KeyedUniforms

TEMPERATURE = 1.5
seen: dict[str, Item] = {}


def echo_of(prompt_text: str, completion_text: str, answer: int) -> float:
    """A number that no other prompt, completion or answer has."""
    return zlib.crc32(f"{prompt_text}|{completion_text}|{answer}".encode()) / 2**32


@reward(description="A number that tells what was sent; the first to come are the last to be answered.")
async def echo(item: Item) -> float:
    seen[item.completion.completion_id] = item
    await asyncio.sleep(0.05 * (16 - int(item.completion.completion_id.split("-")[1]) % 16) / 16)
    return echo_of(item.prompt.text, item.text, item.columns["answer"])


@contextlib.contextmanager
def echoing() -> Iterator[str]:
    """The address of a server in this process, on a loop of its own."""
    ready, stop, addresses = threading.Event(), threading.Event(), []

    async def serve() -> None:
        server = RewardServer([echo], name="echo")
        addresses.append(f"127.0.0.1:{await server.start()}")
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.stop(1.0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield addresses[0]
    finally:
        stop.set()
        thread.join(20)


def written_alone(prompt_text: str, index: int) -> str:
    """The completion of this index in step 1, decoded with its end, by itself in its batch."""
    h = GrpoHyperparameters(temperature=TEMPERATURE, max_response_length=12)
    model, tokenizer = load_policy("builtin:tiny", h, torch.device("cpu"))
    (tokens,) = roll_out(
        model.eval(),
        [tokenizer.encode(prompt_text, add_special_tokens=False)],
        global_indices_B=[index],
        uniforms=KeyedUniforms(h.seed, 1),
        settings=RolloutSettings(12, TEMPERATURE, 1.0, 0, end_token_ids(model, tokenizer), 0),
        on_finish=lambda row: None,
        should_stop=lambda: False,
    ).token_ids_B
    return tokenizer.decode(tokens)


class Forks:
    """Counts forks of this process while it is watched; a program that is started anew is none."""

    def __init__(self) -> None:
        self.count = 0
        self._is_watching = True
        # Such a hook stays for the life of the process.
        os.register_at_fork(before=self._note)

    def _note(self) -> None:
        self.count += self._is_watching

    def end(self) -> None:
        self._is_watching = False


def test_a_step_joins_what_belongs_together(tmp_path) -> None:
    """Eight rows of which two have the same prompt and other answers: each stays a group of its own."""
    sums = [(3, 4), (12, 7), (3, 4), (19, 18), (1, 1), (10, 5), (0, 9), (16, 2)]
    rows = [
        ([{"role": "user", "content": f"What is {left} + {right}?"}], {"answer": left + right + 100 * row})
        for row, (left, right) in enumerate(sums)
    ]
    dataset = write_dataset(tmp_path / "artifacts", rows)
    forks = Forks()
    seen.clear()
    with echoing() as address:
        bound = RewardBinding(name="echo", server="echo", reward="echo")
        start = make_start(
            tmp_path,
            [(bound, address)],
            dataset=dataset,
            max_steps=2,
            micro_batch_size=4,
            temperature=TEMPERATURE,
        )
        run = RunHere(tmp_path, start)
        assert run.go().state is RunState.COMPLETED
    forks.end()
    assert forks.count == 0

    written = [
        row
        for entry in run.entries(CompletionsWritten)
        for row in pq.read_table(tmp_path / "artifacts" / entry.uri).to_pylist()
    ]
    assert len(written) == len(seen) == 32
    assert len({(row["prompt_text"], row["completion_text"]) for row in written}) > 16
    answers_of: dict[str, set[int]] = {}
    rewards_of: dict[str, list[float]] = {}
    for row in written:
        item = seen[row["completion_id"]]
        left, right = map(int, re.findall(r"\d+", row["prompt_text"])[-2:])
        answer = json.loads(row["columns"])["answer"]
        # The row of the dataset: its answer to its question.
        assert answer % 100 == left + right
        # What the server was sent, and what it said of exactly that.
        assert (item.prompt.text, item.text) == (row["prompt_text"], row["completion_text"])
        assert (item.columns["answer"], item.prompt.group_id) == (answer, row["group_id"])
        assert row["reward"] == echo_of(row["prompt_text"], row["completion_text"], answer)
        answers_of.setdefault(row["group_id"], set()).add(answer)
        rewards_of.setdefault(row["group_id"], []).append(row["reward"])
    assert sorted(next(iter(answers)) for answers in answers_of.values()) == sorted(
        columns["answer"] for _, columns in rows
    )
    assert all(len(answers) == 1 for answers in answers_of.values())
    # What the policy, as it was before the first step, writes after this prompt alone.
    for row in written[:16]:
        assert written_alone(row["prompt_text"], int(row["completion_id"].split("-")[1])) == row["raw_text"]
    # The baseline is that of the completion's own group.
    for row in written:
        mean = sum(rewards_of[row["group_id"]]) / 4
        assert (row["advantage"] > 0) == (row["reward"] > mean) or row["reward"] == mean
