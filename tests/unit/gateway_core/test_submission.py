"""What only the gateway can know of a new job, and that all that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.jobs.ports import AskedReward, CheckedConfigs, OfferedReward, ServerDescription
from gateway.jobs.submission import check_submission
from gateway.jobs.trainer_questions import NoTrainers
from gateway.store.datasets import StoredDataset
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import FieldViolation, InvalidArgumentError, NotFoundError

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SCHEMA = {
    "type": "object",
    "properties": {
        "column": {"type": "string", "default": "answer"},
        "tag": {"type": "string", "default": "answer"},
    },
    "additionalProperties": False,
}


class Datasets:
    """One dataset of ten rows with the columns answer and level; one with level alone, one for sft."""

    async def find(self, id_or_name: str) -> StoredDataset | None:
        for number, (name, columns, methods) in enumerate(
            (
                ("numbers", ("answer", "level"), ("grpo",)),
                ("unanswered", ("level",), ("grpo",)),
                ("answers", ("answer",), ("sft",)),
            ),
            start=1,
        ):
            if id_or_name in (f"ds_{number}", name):
                return StoredDataset(
                    f"ds_{number}", name, "upload", 10, columns, methods, 1, "ab", "datasets/ab.parquet", NOW
                )
        return None


class Servers:
    """`builtin` answers, `away` does not."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.put_to: list[tuple[str, list[AskedReward]]] = []

    async def find(self, id_or_name: str) -> RegisteredRewardServer | None:
        if id_or_name not in ("builtin", "away", "rs_builtin"):
            return None
        name = id_or_name.removeprefix("rs_")
        return RegisteredRewardServer(f"rs_{name}", name, ("127.0.0.1:1",), True, NOW)

    async def describe(self, server: RegisteredRewardServer) -> ServerDescription:
        self.asked.append(server.name)
        if server.name == "away":
            return ServerDescription(reachable=False, unreachable_reason="nothing listens")
        return ServerDescription(
            reachable=True,
            server_version="builtin 1",
            rewards=(
                OfferedReward("exact_answer", required_columns=("answer",), config_schema=SCHEMA),
                OfferedReward("needs_text", required_columns=("text", "prompt")),
                OfferedReward("length_penalty"),
            ),
        )

    async def check_configs(
        self, server: RegisteredRewardServer, rewards: Sequence[AskedReward]
    ) -> CheckedConfigs:
        self.put_to.append((server.name, list(rewards)))
        return CheckedConfigs(
            [
                FieldViolation(f"{reward.field}.config.tag", "no such tag")
                for reward in rewards
                if reward.config.get("tag") == "refused"
            ],
            {
                reward.field: ("prompt", "answer", "gold")
                for reward in rewards
                if reward.config.get("tag") == "gold"
            },
        )


class NoJobs:
    """No job to start from."""

    async def find(self, job_id: str) -> None:
        return None


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "base_model": "builtin:tiny",
        "dataset_id": "numbers",
        "output_name": "adder",
        "rewards": [{"server": "builtin", "reward": "exact_answer"}],
        **changes,
    }


async def wrong(data: object) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as refused:
        await check_submission(data, Datasets(), Servers(), NoJobs(), NoTrainers())
    return {v.field: v.message for v in refused.value.violations}


async def test_a_good_job_is_resolved() -> None:
    servers = Servers()
    rewards = [
        {"server": "builtin", "reward": "exact_answer"},
        {"server": "rs_builtin", "reward": "length_penalty"},
        {"server": "away", "reward": "anything", "config": {"x": 1}},
    ]
    submission = await check_submission(spec(rewards=rewards), Datasets(), servers, NoJobs(), NoTrainers())
    assert submission.dataset_id == "ds_1"
    assert submission.reward_server_ids == ("rs_builtin", "rs_builtin", "rs_away")
    assert [b.name for b in submission.spec.rewards] == ["exact_answer", "length_penalty", "anything"]
    # Each server is asked once, however many of its rewards are named.
    assert sorted(servers.asked) == ["away", "builtin"]


async def test_everything_that_is_wrong_is_named_at_once() -> None:
    found = await wrong(
        spec(
            dataset_id="none",
            output_name="not a name",
            hyperparameters={"kl_coef": "much", "learning_rat": 1, "temperature": 0},
            rewards=[
                {"server": "nowhere", "reward": "x"},
                {"server": "builtin", "reward": "exactanswer", "weight": 2e6},
                {"server": "builtin", "reward": "exact_answer", "config": {"tagg": "x"}, "name": "third"},
            ],
        )
    )
    assert set(found) == {
        "dataset_id",
        "output_name",
        "hyperparameters.kl_coef",
        "hyperparameters.learning_rat",
        "hyperparameters.temperature",
        "rewards[0].server",
        "rewards[1].weight",
        "rewards[1].reward",
        "rewards[2].config.tagg",
    }
    assert "it has exact_answer, " in found["rewards[1].reward"]


async def test_the_dataset_of_evaluations_is_checked_as_the_one_of_training() -> None:
    def evaluated_on(name: str) -> dict[str, Any]:
        return spec(hyperparameters={"eval_dataset_id": name, "global_batch_size": 80})

    submission = await check_submission(
        evaluated_on("numbers"), Datasets(), Servers(), NoJobs(), NoTrainers()
    )
    assert (submission.dataset_id, submission.eval_dataset_id) == ("ds_1", "ds_1")
    found = await wrong(evaluated_on("unanswered"))
    assert list(found) == ["rewards[0].reward"]
    assert (
        '"answer": exact_answer needs this column, and held-out dataset (hyperparameters.eval_dataset_id) '
        '"unanswered" lacks it'
    ) in str(found)
    found = await wrong(evaluated_on("answers"))
    assert list(found) == ["hyperparameters.eval_dataset_id"]
    assert "cannot be used by grpo: not every row has a prompt to answer" in str(found)
    with pytest.raises(NotFoundError) as missing:
        await check_submission(evaluated_on("none"), Datasets(), Servers(), NoJobs(), NoTrainers())
    assert missing.value.field == "hyperparameters.eval_dataset_id"
    assert (
        await check_submission(spec(), Datasets(), Servers(), NoJobs(), NoTrainers())
    ).eval_dataset_id is None


async def test_only_unknown_names_are_not_found() -> None:
    with pytest.raises(NotFoundError) as missing:
        await check_submission(spec(dataset_id="none"), Datasets(), Servers(), NoJobs(), NoTrainers())
    assert missing.value.field == "dataset_id"
    data = spec(dataset_id="none", rewards=[{"server": "nowhere", "reward": "x"}])
    with pytest.raises(NotFoundError, match="nowhere") as missing:
        await check_submission(data, Datasets(), Servers(), NoJobs(), NoTrainers())
    assert "none" in missing.value.message
    assert set(await wrong(spec(dataset_id="none", method="ppo"))) == {"dataset_id", "method"}


async def test_columns_that_only_the_server_knows_of_are_looked_for_in_the_dataset() -> None:
    exact = {"server": "builtin", "reward": "exact_answer"}
    told = await wrong(spec(rewards=[exact, {**exact, "name": "golden", "config": {"tag": "gold"}}]))
    assert told == {
        "rewards[1].reward": '"gold": exact_answer needs this column, and dataset "numbers" lacks it; it has '
        "answer, level"
    }


async def test_a_dataset_smaller_than_a_step_is_refused_with_a_size_that_works() -> None:
    found = await wrong(spec(hyperparameters={"global_batch_size": 88}))
    assert list(found) == ["hyperparameters.global_batch_size"]
    assert "88 takes 11 prompts a step" in found["hyperparameters.global_batch_size"]
    assert "has 10; 80 would work" in found["hyperparameters.global_batch_size"]
    await check_submission(
        spec(hyperparameters={"global_batch_size": 80}), Datasets(), Servers(), NoJobs(), NoTrainers()
    )


@pytest.mark.parametrize(
    ("reward", "field", "words"),
    [
        ({"reward": "needs_text"}, "rewards[0].reward", ['"text"', "answer, level"]),
        (
            {"reward": "exact_answer", "config": {"column": "solution"}},
            "rewards[0].config.column",
            ['"solution"', "answer, level"],
        ),
    ],
)
async def test_columns_that_a_reward_needs(reward: dict[str, Any], field: str, words: list[str]) -> None:
    found = await wrong(spec(rewards=[{"server": "builtin", **reward}]))
    assert list(found) == [field]
    assert all(word in found[field] for word in words)


@pytest.mark.parametrize("config", [{"column": "level"}, {"tag": "solution"}, {}])
async def test_a_column_that_the_configuration_names_takes_the_place_of_the_default(
    config: dict[str, Any],
) -> None:
    rewards = [{"server": "builtin", "reward": "exact_answer", "config": config}]
    await check_submission(spec(rewards=rewards), Datasets(), Servers(), NoJobs(), NoTrainers())


@pytest.mark.parametrize(
    "junk",
    [None, 3, [], "text", {"rewards": 3}, {"rewards": [1, {}]}, {"hyperparameters": [], "dataset_id": 4}],
)
async def test_junk_is_refused_and_not_a_crash(junk: object) -> None:
    assert await wrong(junk)
