"""Every completion with its scores, in a Parquet file for each rollout, and for each evaluation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from plaudit.scoring import CompletionScores
from plaudit.types.scoring import Failed, FinishReason, NotApplicable, Outcome, Scored
from trainer_service.journal import CompletionsWritten
from trainer_service.training.evaluation import Evaluation
from trainer_service.training.samples import RewardTable, Sample, ScoredRollout

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("attempt", pa.int32()),
        ("group_id", pa.string()),
        ("completion_id", pa.string()),
        ("prompt_text", pa.string()),
        ("completion_text", pa.string()),
        ("token_count", pa.int32()),
        ("truncated", pa.bool_()),
        # null: it could not be scored
        ("reward", pa.float64()),
        # null: it moved nothing
        ("advantage", pa.float64()),
        # JSON list in the order of the job's rewards
        ("outcomes", pa.string()),
        # From here on: what a reward needs besides, to score it again. JSON list of {"role", "content"}
        ("messages", pa.string()),
        # JSON object: the other columns of the dataset's row
        ("columns", pa.string()),
        ("prefill", pa.string()),
        # "" where it is completion_text
        ("raw_text", pa.string()),
    ]
)


def write_completions(
    artifact_root: Path, *, job_id: str, attempt: int, rollout: ScoredRollout, mask_truncated: bool
) -> CompletionsWritten:
    """Writes the rollout's completions and returns the entry that names the file. Raises OSError."""
    advantages_B: list[float | None] = []
    for b, sample in enumerate(rollout.samples_B):
        truncated = sample.completion.finish_reason is FinishReason.LENGTH
        moved = rollout.advantages.kept_B[b] and not (mask_truncated and truncated)
        advantages_B.append(float(rollout.advantages.advantages_B[b]) if moved else None)
    rows = _rows(rollout.step, attempt, rollout.samples_B, rollout.scores_B, rollout.rewards, advantages_B)
    return _write(artifact_root, _uri(job_id, attempt, "completions", rollout.step), rollout.step, rows)


def write_evaluation(
    artifact_root: Path, *, job_id: str, attempt: int, evaluation: Evaluation
) -> CompletionsWritten:
    """Writes the completions of an evaluation to a file of its own, in the same form; they have moved
    nothing. Raises OSError.
    """
    samples_B = evaluation.samples_B
    nothing_B = [None] * len(samples_B)
    rows = _rows(evaluation.step, attempt, samples_B, evaluation.scores_B, evaluation.rewards, nothing_B)
    return _write(artifact_root, _uri(job_id, attempt, "evaluations", evaluation.step), evaluation.step, rows)


def _uri(job_id: str, attempt: int, folder: str, step: int) -> PurePosixPath:
    return PurePosixPath("jobs") / job_id / f"attempt-{attempt}" / folder / f"step-{step:06d}.parquet"


def _write(
    artifact_root: Path, uri: PurePosixPath, step: int, rows: list[dict[str, object]]
) -> CompletionsWritten:
    path = artifact_root / uri
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    unfinished = path.with_name(f".{path.name}.unfinished")
    pq.write_table(table, unfinished)
    content = unfinished.read_bytes()
    unfinished.replace(path)
    return CompletionsWritten(
        step=step,
        uri=str(uri),
        row_count=table.num_rows,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _rows(
    step: int,
    attempt: int,
    samples_B: Sequence[Sample],
    scores_B: Sequence[CompletionScores | None],
    rewards: RewardTable,
    advantages_B: Sequence[float | None],
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for b, sample in enumerate(samples_B):
        scored = not (rewards.failed_B[b] or rewards.not_applicable_B[b])
        rows.append(
            {
                "step": step,
                "attempt": attempt,
                "group_id": sample.group_id,
                "completion_id": sample.completion.completion_id,
                "prompt_text": sample.prompt.text,
                "completion_text": sample.completion.text,
                "token_count": sample.completion.token_count,
                "truncated": sample.completion.finish_reason is FinishReason.LENGTH,
                "reward": float(rewards.sums_B[b]) if scored else None,
                "advantage": advantages_B[b],
                "outcomes": json.dumps(_outcomes(scores_B[b]), ensure_ascii=False),
                "messages": json.dumps(
                    [asdict(message) for message in sample.prompt.messages], ensure_ascii=False
                ),
                "columns": json.dumps(dict(sample.prompt.columns), ensure_ascii=False),
                "prefill": sample.completion.prefill,
                "raw_text": sample.completion.raw_text,
            }
        )
    return rows


def _outcomes(scores: CompletionScores | None) -> list[dict[str, object]]:
    if scores is None:
        return []
    return [
        {
            "name": name,
            **_outcome(scored.outcome),
            "scored_at": scored.scored_at.isoformat(),
        }
        for name, scored in scores.outcomes.items()
    ]


def _outcome(outcome: Outcome) -> dict[str, object]:
    match outcome:
        case Scored():
            return {"status": "scored", "value": outcome.value, "explanation": outcome.explanation}
        case NotApplicable():
            return {"status": "not_applicable", "value": None, "explanation": outcome.reason}
        case Failed():
            return {"status": str(outcome.code), "value": None, "explanation": outcome.message}
