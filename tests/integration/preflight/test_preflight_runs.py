"""Runs with a preflight: what it stops, what it lets pass, and what it leaves as it was."""

import time
from pathlib import Path

import pytest
from run_harness import RunHere, binding, make_start

from gateway.jobs.completions import CompletionReader
from gateway.store.completions import CompletionFile
from plaudit.types.scoring import FinishReason
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.journal import (
    CheckpointSaved,
    CompletionsWritten,
    LogLine,
    PreflightFinished,
    StepCompleted,
)


def run_of(tmp_path, dataset, address, *names, preflight="stop", **fields):
    start = make_start(tmp_path, [(binding(name), address) for name in names], dataset=dataset, **fields)
    spec = start.spec.model_copy(update={"preflight": preflight})
    return RunHere(tmp_path, start.model_copy(update={"spec": spec}))


def report_of(run):
    (entry,) = run.entries(PreflightFinished)
    return entry.report


def test_a_sound_job_passes_and_its_curves_stay_what_they_are(tmp_path, probed_server, dataset):
    checked = run_of(tmp_path, dataset, probed_server, "sound", max_steps=3)
    assert checked.go().state is RunState.COMPLETED
    report = report_of(checked)
    assert (report.prompt_count, report.completion_count) == (8, 16)
    assert report.critical == ()
    (reward,) = report.rewards
    assert (reward.known_good_mean, reward.known_bad_mean, reward.canary_mean) == (1.0, 0.0, 0.0)
    assert reward.scored_count == 16
    assert 0.0 <= report.informative_group_fraction <= 1.0
    assert {s.prompt_text.count("What is") for s in report.samples} == {1}
    assert any("preflight: 16 completions for 8 prompts" in line.message for line in checked.entries(LogLine))

    plain = run_of(tmp_path, dataset, probed_server, "sound", preflight="off", max_steps=3)
    assert plain.go().state is RunState.COMPLETED
    assert plain.entries(PreflightFinished) == []

    def untimed(run):
        timed = ("seconds", "tokens_per_second")
        return [{k: v for k, v in step.items() if not k.endswith(timed)} for step in run.metrics()]

    assert untimed(checked) == untimed(plain)

    folder = tmp_path / "artifacts" / "jobs" / "job" / "attempt-1" / "completions"
    assert sorted(p.name for p in folder.iterdir()) == [f"step-{n:06d}.parquet" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("reward", "kind", "told"),
    [
        ("always_zero", "constant_reward", "gave 0 to all 16 completions"),
        ("not_a_number", "failing_reward", "nan"),
        ("beyond", "failing_reward", "outside its declared range"),
        ("likes_colons", "nothing_scores_well", "an empty completion"),
        ("refused", "failing_reward", "JUDGE_KEY was refused"),
    ],
)
def test_what_would_make_the_run_worthless_stops_it(tmp_path, probed_server, dataset, reward, kind, told):
    run = run_of(tmp_path, dataset, probed_server, reward)
    end = run.go()
    assert end.state is RunState.FAILED
    assert end.error.code is ErrorCode.PREFLIGHT_FAILED
    found = next(f for f in report_of(run).critical if f.kind == kind)
    assert found.reward == reward
    assert told in found.seen
    for critical in report_of(run).critical:
        assert critical.message in end.error.message
    assert 'preflight "warn"' in end.error.message
    assert run.entries(StepCompleted) == [] and run.entries(CheckpointSaved) == []


def test_warn_lets_it_pass_and_keeps_what_was_found(tmp_path, probed_server, dataset):
    run = run_of(tmp_path, dataset, probed_server, "always_zero", "sound", preflight="warn", max_steps=1)
    assert run.go().state is RunState.COMPLETED
    assert [f.kind for f in report_of(run).critical] == ["constant_reward"]
    assert len(run.entries(StepCompleted)) == 1


def test_a_reward_that_is_never_earned_is_told_and_lets_the_job_go(tmp_path, probed_server, dataset):
    run = run_of(tmp_path, dataset, probed_server, "never_earned", max_steps=1)
    assert run.go().state is RunState.COMPLETED
    kinds = {f.kind: f.severity for f in report_of(run).findings}
    assert kinds == {"never_earned": "warning"}


def test_a_rank_of_the_whole_group_and_examples_that_fail(tmp_path, probed_server, dataset):
    run = run_of(tmp_path, dataset, probed_server, "shortest", "bad_examples", max_steps=1)
    assert run.go().state is RunState.COMPLETED
    report = report_of(run)
    ranked, other = report.rewards
    assert (ranked.scored_count, ranked.canary_mean) == (16, None)
    assert ranked.mean == pytest.approx(0.75)  # 1 and 0.5 for the two of each prompt
    told = next(f for f in report.findings if f.kind == "no_examples")
    assert told.reward == other.name == "bad_examples"
    assert "KeyError" in told.seen


def test_all_truncated(tmp_path, probed_server, dataset):
    run = run_of(tmp_path, dataset, probed_server, "sound", max_response_length=2)
    assert run.go().error.code is ErrorCode.PREFLIGHT_FAILED
    found = next(f for f in report_of(run).critical if f.kind == "truncated")
    assert "all of 16 completions were cut at max_response_length (2 tokens)" in found.seen
    assert report_of(run).truncated_count == 16


def test_a_run_from_a_checkpoint_is_not_checked_again(tmp_path, probed_server, dataset):
    first = run_of(tmp_path, dataset, probed_server, "sound", max_steps=4)
    told = first.control.report

    def pause_after_two(**report):
        if report["step"] == 2:
            first.control._obey({"command": "pause"})
        told(**report)

    first.control.report = pause_after_two
    assert first.go().state is RunState.PAUSED
    uri = first.entries(CheckpointSaved)[-1].uri
    second = run_of(tmp_path, dataset, probed_server, "sound", max_steps=4, attempt=2, checkpoint_uri=uri)
    assert second.go().state is RunState.COMPLETED
    assert second.entries(PreflightFinished) == []


@pytest.mark.parametrize(("command", "state"), [("cancel", RunState.CANCELLED), ("pause", RunState.PAUSED)])
def test_it_can_be_ended_while_it_waits_for_scores(tmp_path, probed_server, dataset, command, state):
    run = run_of(tmp_path, dataset, probed_server, "sleepy")
    told, asked_at = run.control.report, []

    def end_it_while_it_waits(**report):
        if "preflight: the rewards score them" in report["status_detail"] and not asked_at:
            asked_at.append(time.monotonic())
            run.control._obey({"command": command, "grace_seconds": 30.0})
        told(**report)

    run.control.report = end_it_while_it_waits
    assert run.go().state is state
    assert time.monotonic() - asked_at[0] < 20  # the scores would have taken longer
    assert run.entries(PreflightFinished) == [] and run.entries(StepCompleted) == []


async def test_what_is_stored_of_a_step_can_be_scored_again(tmp_path, probed_server, dataset):
    """The gateway reads what the trainer wrote: all that a reward is given."""
    run = run_of(tmp_path, dataset, probed_server, "sound", max_steps=1)
    run.go()
    (written,) = run.entries(CompletionsWritten)
    root = Path(tmp_path / "artifacts")
    file = CompletionFile(1, 1, written.uri, written.row_count, written.size_bytes, written.sha256)
    scorable = await CompletionReader(root).scorable(file, 4, 8)
    assert [s.completion.completion_id for s in scorable] == [f"1-{n}" for n in range(4, 12)]
    for one in scorable:
        (turn,) = one.prompt.messages
        assert turn.role == "user" and turn.content in one.prompt.text
        left, right = (int(n) for n in turn.content.removeprefix("What is ").rstrip("?").split(" + "))
        assert one.prompt.columns == {"answer": left + right}
        assert one.completion.text == one.scored.completion_text
        assert (one.completion.finish_reason is FinishReason.LENGTH) == one.scored.truncated
