"""At submit a reward server is asked itself, and what it refuses is told in the job's own words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from edges import DescribedServer, Edges, described_server, details_of, open_edges
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from job_fixtures import GOOD, to_message
from pydantic import BaseModel, ConfigDict, Field, field_validator
from secured import Keys, half, kit_server

from gateway.rewards import Registration, replicas
from plaudit.errors import FieldViolation
from plaudit.gateway.v1 import training_job_service_pb2 as jobs_pb
from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service import Item, Reward, reward

ANY_OBJECT = '{"type": "object"}'


class Asked(DescribedServer):
    """Answers the first ScoreOnce with a status, after a given time."""

    def __init__(
        self,
        code: grpc.StatusCode | None,
        violations: dict[str, str] | None = None,
        delay: float = 0.0,
    ) -> None:
        rewards = [pb.Reward(name=name, config_schema_json=ANY_OBJECT) for name in ("exact", "short")]
        super().__init__(
            pb.GetServerInfoResponse(
                server_name="math", min_protocol_version=1, max_protocol_version=1, rewards=rewards
            )
        )
        self.code = code
        self.violations = violations or {}
        self.delay_of_answer = delay
        self.questions: list[pb.ScoreOnceRequest] = []

    async def ScoreOnce(self, request: Any, context: Any) -> pb.ScoreOnceResponse:
        self.questions.append(request)
        await asyncio.sleep(self.delay_of_answer)
        if self.code is not None and len(self.questions) == 1:
            bad = error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=field, description=why)
                    for field, why in self.violations.items()
                ]
            )
            status = status_pb2.Status(code=code_pb2.Code.Value(self.code.name), message="no")
            status.details.add().Pack(bad)
            await context.abort_with_status(rpc_status.to_status(status))
        return pb.ScoreOnceResponse()


def spec(*rewards: dict[str, Any]) -> dict[str, Any]:
    return {**GOOD, "rewards": list(rewards)}


def on_judge(reward_name: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"server": "judge", "reward": reward_name, "name": name, **fields}


async def refused(edges: Edges, asked: dict[str, Any]) -> dict[str, str]:
    """What is wrong with a job, in both languages; {} where it would be queued."""
    request = jobs_pb.CreateTrainingJobRequest(spec=to_message(asked), validate_only=True)
    try:
        await edges.jobs.CreateTrainingJob(request)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error.details()
        return details_of(error)
    return {}


async def add(edges: Edges, address: str, **fields: Any) -> None:
    await edges.gateway.datasets.start()
    registration = Registration.model_validate({"addresses": (address,), **fields})
    await edges.gateway.reward_servers.create("judge", registration)


def patterned() -> Reward:
    class Config(BaseModel):
        pattern: str

        @field_validator("pattern")
        @classmethod
        def _compiles(cls, pattern: str) -> str:
            if "(?=" in pattern:
                raise ValueError("a pattern has no lookahead here; write it without")
            return pattern

    @reward(name="matches", config=Config, min_value=0.0, max_value=1.0)
    async def matches(item: Item) -> float:
        """1 where it matches."""
        return 1.0

    return matches


def picking() -> Reward:
    class Config(BaseModel):
        where: str

    @reward(name="picks", config=Config, required_columns=lambda config: (config.where,))
    async def picks(item: Item) -> float:
        """What stands in a column of choice."""
        return float(str(item.columns[item.config.where]))

    return picks


async def test_a_wrong_config_that_only_the_server_knows_is_told_before_anything_runs(
    keys: Keys, tmp_path: Path
) -> None:
    security = keys.server(mutual=True, token=True)
    async with (
        open_edges(tmp_path, secrets=keys.secrets) as edges,
        kit_server(security, half(), patterned(), picking()) as at,
    ):
        tls = {"ca": "judge", "client_certificate": "trainer", "server_name": "judge.example"}
        await add(edges, at, tls=tls, credential="judge")
        told = await refused(
            edges,
            spec(
                on_judge("half", "a"),
                on_judge("matches", "b", config={"pattern": "a+"}),
                on_judge("matches", "c", config={"pattern": "(?=a)b"}),
            ),
        )
        assert list(told) == ["rewards[2].config.pattern"]
        assert "no lookahead here" in told["rewards[2].config.pattern"]
        assert await refused(edges, spec(on_judge("matches", "b", config={"pattern": "a+"}))) == {}
        # Which columns a config needs, the description cannot say.
        told = await refused(
            edges,
            spec(
                on_judge("picks", "a", config={"where": "answer"}),
                on_judge("picks", "b", config={"where": "elsewhere"}),
            ),
        )
        assert list(told) == ["rewards[1].reward"]
        assert told["rewards[1].reward"].startswith('"elsewhere": picks needs this column, and dataset ')


def strict() -> Reward:
    class Config(BaseModel):
        model_config = ConfigDict(extra="forbid")

        pattern: str = Field(examples=["a+"])
        who: str
        depth: int = Field(default=1, le=3)
        tags: list[str] = Field(default=[], max_length=2)

        @field_validator("pattern")
        @classmethod
        def _compiles(cls, pattern: str) -> str:
            if "(?=" in pattern:
                raise ValueError("a pattern has no lookahead here; write it without")
            return pattern

    async def check(config: Config) -> list[FieldViolation]:
        unknown = [FieldViolation("who", f"nobody is called {config.who}")] if config.who != "main" else []
        # Which follows from the default alone where the given one is wrong.
        return [*unknown, *([FieldViolation("depth", "1 is too flat")] if config.depth == 1 else [])]

    @reward(name="strict", config=Config, check=check, required_columns=("gold",))
    async def strict(item: Item) -> float:
        """Strict about its configuration."""
        return 1.0

    return strict


async def test_what_schema_server_and_check_find_is_told_at_once(tmp_path: Path) -> None:
    everything = {"depth": 7, "pattern": "(?=a)b", "who": "nobody", "tags": ["a", "b", "c"], "size": 1}
    async with open_edges(tmp_path) as edges, kit_server(None, strict(), picking()) as at:
        await add(edges, at)
        told = await refused(
            edges,
            spec(
                on_judge("strict", "a", config=everything, weight=2e6),
                on_judge("strict", "b", config={"pattern": "a", "who": "nobody", "depth": 2}),
                on_judge("strict", "c", config={"pattern": 3, "who": "nobody"}),
            ),
        )
        assert set(told) == {
            # By the job's own rules, by the columns of the dataset, by the schema,
            *("rewards[0].weight", "rewards[0].reward", "rewards[1].reward", "rewards[2].reward"),
            *("rewards[0].config.depth", "rewards[0].config.tags", "rewards[0].config.size"),
            # by what only the server's reading of it finds, and by the reward's own check of the rest.
            *("rewards[0].config.pattern", "rewards[0].config.who", "rewards[1].config.who"),
            # Another pattern stands for the one that is none, which it must have.
            *("rewards[2].config.pattern", "rewards[2].config.who", "rewards[2].config.depth"),
        }
        assert "7 is greater than the maximum of 3" in told["rewards[0].config.depth"]
        assert "no lookahead here" in told["rewards[0].config.pattern"]
        assert told["rewards[0].config.who"] == "nobody is called nobody"
        # A column that the config names, beside what is wrong elsewhere in the job.
        told = await refused(
            edges,
            spec(
                on_judge("picks", "a", config={"where": "elsewhere"}),
                on_judge("strict", "b", config={"pattern": "(?=a)", "who": "main"}),
            ),
        )
        assert set(told) == {
            *("rewards[0].reward", "rewards[1].reward"),
            *("rewards[1].config.pattern", "rewards[1].config.depth"),
        }


async def test_a_function_is_told_what_its_server_says_beside_its_name(tmp_path: Path) -> None:
    class Config(BaseModel):
        source: str
        filename: str
        format: str

    async def check(config: Config) -> list[FieldViolation]:
        return [FieldViolation("source", "line 1: invalid syntax")] if "def" not in config.source else []

    @reward(name="python_function", config=Config, check=check)
    async def function(item: Item) -> float:
        """What a function returns."""
        return 1.0

    async with open_edges(tmp_path) as edges, kit_server(None, function) as at:
        await edges.gateway.reward_servers.create("builtin", Registration(addresses=(at,)))
        for name, source, wrong in (
            ("a/b", "nonsense", {"name", "file"}),
            ("a", "nonsense", {"file"}),
            ("a/b", "def reward(): ...", {"name"}),
            ("a/b", "", {"name", "file"}),
        ):
            answer = await edges.http.post(
                "/v1/reward_functions", data={"name": name}, files={"file": ("f.py", source, "text/x-python")}
            )
            assert answer.status_code == 422, answer.text
            assert {error["param"] for error in answer.json()["error"]["errors"]} == wrong


async def test_violations_are_told_by_the_jobs_own_paths(tmp_path: Path) -> None:
    server = Asked(
        grpc.StatusCode.INVALID_ARGUMENT,
        {
            "rewards[1].config_json.tag": "no such tag",
            "open.rewards[0].config.depth": "at most 3",
            "rewards[0].name": "not here",
            "batch": "has no groups",
            "rewards[7].config_json": "there is none",
        },
    )
    async with open_edges(tmp_path) as edges, described_server(server) as address:
        await add(edges, address)
        told = await refused(
            edges,
            spec(
                on_judge("absent", "x"),
                on_judge("exact", "a", config={"depth": 7}),
                on_judge("short", "b", config={"tag": "<x>"}),
            ),
        )
        # What is not there is not asked about; what is wrong with our question is not the job's.
        question, *again = server.questions
        left = sorted((r.name, r.config_json) for one in again for r in one.rewards)
        assert left == [("exact", "{}"), ("short", "{}")]
        assert [(r.name, r.config_json) for r in question.rewards] == [
            ("exact", '{"depth": 7}'),
            ("short", '{"tag": "<x>"}'),
        ]
        assert not question.batch.groups
        assert {field: why for field, why in told.items() if field != "rewards[0].reward"} == {
            "rewards[2].config.tag": "no such tag",
            "rewards[1].config.depth": "at most 3",
            "rewards[1].reward": "not here",
        }
        assert "has no reward" in told["rewards[0].reward"]


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        None,
    ],
)
async def test_a_server_that_does_not_know_the_question_refuses_nothing(
    tmp_path: Path, code: grpc.StatusCode | None
) -> None:
    server = Asked(code, {"batch.groups": "is empty"})
    async with open_edges(tmp_path) as edges, described_server(server) as address:
        await add(edges, address)
        assert await refused(edges, spec(on_judge("exact", "a"))) == {}
        assert len(server.questions) == 1


async def test_a_server_that_never_answers_the_question_costs_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Asked(None, delay=60.0)
    async with open_edges(tmp_path) as edges, described_server(server) as address:
        await add(edges, address)
        monkeypatch.setattr(replicas, "DEADLINE_SECONDS", 1.0)
        assert await refused(edges, spec(on_judge("exact", "a"))) == {}
        assert len(server.questions) == 1


async def test_a_job_is_accepted_where_the_server_is_not_up_yet(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as edges:
        await add(edges, "127.0.0.1:1")
        assert await refused(edges, spec(on_judge("exact", "a"))) == {}


async def test_a_protocol_that_no_trainer_speaks_is_refused_with_both_ranges(tmp_path: Path) -> None:
    server = Asked(None)
    server.answer.min_protocol_version, server.answer.max_protocol_version = 2, 4
    async with open_edges(tmp_path) as edges, described_server(server) as address:
        await add(edges, address)
        told = await refused(edges, spec(on_judge("exact", "a"), on_judge("short", "b")))
        assert list(told) == ["rewards[0].server", "rewards[1].server"]
        assert "it speaks protocol versions 2 to 4 of plaudit.reward.v1" in told["rewards[0].server"]
        assert "trainers speak 1 to 1; upgrade the older of the two" in told["rewards[0].server"]
        assert server.questions == []


async def test_a_reward_whose_range_is_empty_is_refused(tmp_path: Path) -> None:
    server = Asked(None)
    server.answer.rewards[0].min_value, server.answer.rewards[0].max_value = 1.0, 0.0
    async with open_edges(tmp_path) as edges, described_server(server) as address:
        await add(edges, address)
        told = await refused(edges, spec(on_judge("exact", "a"), on_judge("short", "b")))
        assert list(told) == ["rewards[0].reward"]
        assert "no value lies in its range, 1 to 0" in told["rewards[0].reward"]


async def test_the_run_is_told_how_the_server_is_spoken_to_and_never_a_secret(
    keys: Keys, tmp_path: Path
) -> None:
    from gateway.jobs.run_specs import resolve

    async with open_edges(tmp_path, secrets=keys.secrets) as edges:
        tls = {"ca": "judge", "server_name": "judge.example"}
        await add(edges, "127.0.0.1:1", tls=tls, credential="judge")
        request = jobs_pb.CreateTrainingJobRequest(spec=to_message(spec(on_judge("exact", "a"))))
        job = await edges.jobs.CreateTrainingJob(request)
        async with edges.store.snapshot() as session:
            record = await session.jobs.find(job.id)
            assert record is not None
            run = await resolve(session, record)
        (target,) = run.rewards
        assert target.access.credential == "judge"
        assert target.access.tls is not None
        assert target.access.tls.ca == "judge"
        assert "correct-horse" not in run.model_dump_json()
