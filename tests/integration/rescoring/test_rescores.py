"""Rescores over real reward servers, a real store and real files."""

import json

import pytest
from gateway_room import eventually
from rescore_room import GROUP, GROUPS, STEPS, old_of, rows_of, text_of

from plaudit.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from plaudit.types.rescores import RescoreStatus
from plaudit.types.scoring import FinishReason, Purpose

RIGHT = {"server": "late", "reward": "right"}
PER_STEP = GROUPS * GROUP


def new_of(step, index):
    return float(text_of(step, index) == f"<answer>{index // GROUP % 5}</answer>")


async def test_every_completion_is_scored_once_beside_its_old_score(room):
    job_id = await room.job_with_completions()
    rescores = room.gateway.rescores
    made = await rescores.create(job_id, {})
    assert (made.total_count, made.spec.from_step, made.spec.to_step) == (STEPS * PER_STEP, 1, STEPS)
    assert [b.reward for b in made.spec.rewards] == ["right"]
    done = await room.over(made.id)
    assert (done.status, done.error, done.done_count) == (RescoreStatus.COMPLETED, None, STEPS * PER_STEP)
    assert done.started_at <= done.finished_at

    results = await room.results(made.id)
    assert [r.completion.completion_id for r in results] == [
        f"{step}-{index}" for step in range(1, STEPS + 1) for index in range(PER_STEP)
    ]
    for result in results:
        step, index = (int(part) for part in result.completion.completion_id.split("-"))
        assert result.completion.reward == old_of(step, index)
        assert result.completion.outcomes[0].explanation == "then"
        assert result.new_reward == new_of(step, index)
        (outcome,) = result.new_outcomes
        assert (outcome.name, outcome.status, outcome.value) == ("right", "scored", result.new_reward)

    # Each was asked for once, with all that training had given.
    assert len(room.rewards.seen) == STEPS * PER_STEP
    item = next(i for i in room.rewards.seen if i.completion.completion_id == "2-7")
    assert item.prompt.columns == {"answer": 1}
    assert [(m.role, m.content) for m in item.prompt.messages] == [("user", "row 1")]
    assert item.prompt.text == "<user>row 1<assistant>"
    assert item.completion.finish_reason is FinishReason.LENGTH
    assert (item.step, item.purpose, item.job_id) == (2, Purpose.EVAL, made.id)

    both = [
        (old_of(s, i), new_of(s, i))
        for s in range(1, STEPS + 1)
        for i in range(PER_STEP)
        if old_of(s, i) is not None
    ]
    assert done.summary.compared_count == len(both)
    assert done.summary.old_mean == pytest.approx(sum(o for o, _ in both) / len(both))
    assert done.summary.new_mean == pytest.approx(sum(n for _, n in both) / len(both))


async def test_a_range_of_steps_another_weight_and_a_ranking_reward(room):
    job_id = await room.job_with_completions(groups=3)
    rewards = [
        {**RIGHT, "weight": 2.0},
        {"server": "late", "reward": "rank", "weight": -1.0, "name": "place"},
    ]
    made = await room.gateway.rescores.create(job_id, {"rewards": rewards, "from_step": 2, "to_step": 2})
    done = await room.over(made.id)
    assert (done.status, done.done_count) == (RescoreStatus.COMPLETED, 12)
    for result in await room.results(made.id):
        step, index = (int(part) for part in result.completion.completion_id.split("-"))
        assert step == 2
        # Ranked within the whole group, which never comes apart.
        assert result.new_reward == pytest.approx(2.0 * new_of(2, index) - (index % GROUP) / GROUP)
        assert [o.name for o in result.new_outcomes] == ["right", "place"]


async def test_failures_are_counted_and_never_0(room):
    job_id = await room.job_with_completions(steps=1, groups=5)
    made = await room.gateway.rescores.create(job_id, {"rewards": [{"server": "late", "reward": "patchy"}]})
    done = await room.over(made.id)
    assert done.status is RescoreStatus.COMPLETED
    (patchy,) = done.summary.rewards
    assert (patchy.scored_count, patchy.failed_count, patchy.not_applicable_count) == (12, 4, 4)
    assert (done.summary.failed_count, done.summary.not_applicable_count) == (4, 4)
    assert "ValueError" in patchy.failure
    failed = next(r for r in await room.results(made.id) if r.completion.completion_id == "1-0")
    assert failed.new_reward is None
    assert failed.new_outcomes[0].status == "internal"


async def test_where_nothing_is_scored_it_is_failed_and_says_why(room):
    job_id = await room.job_with_completions(steps=1, groups=5)
    made = await room.gateway.rescores.create(
        job_id, {"rewards": [{"server": "late", "reward": "broken"}, RIGHT]}
    )
    done = await room.over(made.id)
    assert done.status is RescoreStatus.FAILED
    assert done.error.code == "nothing_scored"
    assert done.error.message.startswith(
        "none of 20 completions was scored; reward broken: 20 internal, the last with internal: "
    )
    assert (done.done_count, done.summary.failed_count) == (20, 20)


async def test_pages_of_results_and_of_rescores(room):
    job_id = await room.job_with_completions(steps=1)
    rescores = room.gateway.rescores
    first = await rescores.create(job_id, {})
    await room.over(first.id)
    assert await room.results(first.id, limit=77) == await room.results(first.id)
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await rescores.results(first.id, page_token="1.x")
    assert (await rescores.results(first.id, page_token="9.0")).items == []

    second = await rescores.create(job_id, {})
    page = await rescores.list(limit=1)
    assert ([r.id for r in page.items], page.next_page_token) == ([second.id], second.id)
    page = await rescores.list(job_id=job_id, limit=1, after=page.next_page_token)
    assert ([r.id for r in page.items], page.next_page_token) == ([first.id], "")
    await room.over(second.id)


async def test_a_gateway_that_was_away_goes_on_where_it_was(room):
    job_id = await room.job_with_completions()
    room.rewards.gate.clear()
    made = await room.gateway.rescores.create(job_id, {})

    async def first_chunk_is_stored():
        return (await room.gateway.rescores.get(made.id)).done_count >= 512

    await eventually("the first chunk to be asked for", lambda: len(room.rewards.seen) >= 512)
    room.rewards.gate.set()
    await eventually("its results", first_chunk_is_stored)
    room.rewards.gate.clear()
    await room.close()

    room.rewards.gate.set()
    await room.open()
    before = (await room.gateway.rescores.get(made.id)).done_count
    assert before >= 512
    done = await room.over(made.id)
    assert (done.status, done.done_count) == (RescoreStatus.COMPLETED, STEPS * PER_STEP)
    ids = [r.completion.completion_id for r in await room.results(made.id)]
    assert len(ids) == len(set(ids)) == STEPS * PER_STEP
    assert done.summary.rewards[0].scored_count == STEPS * PER_STEP
    # The chunk that was under way was asked for again, and nothing else.
    assert len(room.rewards.seen) <= STEPS * PER_STEP + 512


async def test_a_cancel_keeps_what_was_scored(room):
    job_id = await room.job_with_completions()
    room.rewards.gate.clear()
    rescores = room.gateway.rescores
    made = await rescores.create(job_id, {})
    waiting = await rescores.create(job_id, {})
    third = await rescores.create(job_id, {})
    await eventually("a question", lambda: room.rewards.seen)
    assert (await rescores.get(third.id)).status is RescoreStatus.QUEUED  # two run at a time
    for rescore in (third, made, waiting):
        cancelled = await rescores.cancel(rescore.id)
        assert cancelled.status is RescoreStatus.CANCELLED
        assert (await rescores.cancel(rescore.id)).finished_at == cancelled.finished_at
    room.rewards.gate.set()
    later = await rescores.create(job_id, {"from_step": STEPS})
    assert (await room.over(later.id)).status is RescoreStatus.COMPLETED
    assert (await rescores.get(made.id)).status is RescoreStatus.CANCELLED
    with pytest.raises(FailedPreconditionError, match="completed") as refused:
        await rescores.cancel(later.id)
    assert refused.value.reason == "STATUS_FORBIDS"


async def test_a_server_that_is_not_there_fails_it_with_the_reason(room):
    job_id = await room.job_with_completions(steps=1, groups=1)
    await room.stop_serving()
    room.gateway.rescores._runner._patience_seconds = 3.0  # waits are told from 2 s on
    made = await room.gateway.rescores.create(job_id, {})
    done = await room.over(made.id)
    assert (done.status, done.done_count) == (RescoreStatus.FAILED, 0)
    assert done.error.code == "reward_unavailable"
    assert "late" in done.error.message and "rescore again" in done.error.message


async def test_files_that_are_gone_or_of_an_older_version(room):
    job_id = await room.job_with_completions(steps=1, groups=1)
    older = [{k: v for k, v in row.items() if k != "columns"} for row in rows_of(2, 1)]
    await room.store_step(job_id, 2, older)
    made = await room.gateway.rescores.create(job_id, {"from_step": 2})
    done = await room.over(made.id)
    assert done.status is RescoreStatus.FAILED
    assert "older version, without columns" in done.error.message

    (room.folder / "artifacts" / f"jobs/{job_id}/attempt-1/completions/step-000001.parquet").unlink()
    made = await room.gateway.rescores.create(job_id, {"to_step": 1})
    done = await room.over(made.id)
    assert (done.status, done.error.code) == (RescoreStatus.FAILED, "completions_unreadable")


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (
            {"rewards": [{"server": "late"}], "from_step": -1},
            {"rewards[0].reward", "rewards[0].name", "from_step"},
        ),
        ({"rewards": [{"server": "late", "reward": "wrong"}]}, {"rewards[0].reward"}),
        ({"rewards": [{**RIGHT, "config": {"x": 1}}]}, {"rewards[0].config"}),
        ({"rewards": [{**RIGHT, "weight": 2e6}, RIGHT]}, {"rewards[0].weight", "rewards[1].name"}),
        ({"from_step": 3, "to_step": 2}, {"from_step"}),
        ({"steps": 3}, {"steps"}),
        ({"rewards": "right"}, {"rewards"}),
    ],
)
async def test_all_that_is_wrong_is_told_at_once(room, data, fields):
    job_id = await room.job_with_completions(steps=1, groups=1)
    with pytest.raises(InvalidArgumentError) as refused:
        await room.gateway.rescores.create(job_id, data)
    assert {v.field for v in refused.value.violations} >= fields - {"rewards[0].name"}
    assert not (await room.gateway.rescores.list()).items


async def test_what_is_not_there_is_named(room):
    rescores = room.gateway.rescores
    with pytest.raises(NotFoundError, match="job_nowhere"):
        await rescores.create("job_nowhere", {})
    for call in (rescores.get, rescores.cancel, rescores.results):
        with pytest.raises(NotFoundError, match="resc_nowhere"):
            await call("resc_nowhere")
    job_id = await room.job_with_completions(steps=2, groups=1)
    with pytest.raises(NotFoundError, match="nobody"):
        await rescores.create(job_id, {"rewards": [{"server": "nobody", "reward": "x"}]})
    with pytest.raises(FailedPreconditionError, match="from step 1 to 2") as refused:
        await rescores.create(job_id, {"from_step": 3})
    assert refused.value.reason == "NO_COMPLETIONS"


async def test_a_repeated_request_makes_one_rescore(room):
    job_id = await room.job_with_completions(steps=1, groups=1)
    rescores = room.gateway.rescores
    first = await rescores.create(job_id, {"from_step": 1}, request_id="r1")
    assert (await rescores.create(job_id, {"from_step": 1}, request_id="r1")).id == first.id
    with pytest.raises(FailedPreconditionError) as refused:
        await rescores.create(job_id, {"from_step": 0}, request_id="r1")
    assert refused.value.reason == "REQUEST_ID_REUSED"
    assert len((await rescores.list()).items) == 1
    await room.over(first.id)


def test_old_rows_are_what_trainers_write():
    """The columns of these tests are those of the trainer's files."""
    from trainer_service.training.completions import SCHEMA

    assert list(rows_of(1, 1)[0]) == SCHEMA.names
    assert json.loads(rows_of(1, 1)[0]["columns"]) == {"answer": 0}
