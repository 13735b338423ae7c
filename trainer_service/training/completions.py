"""Every completion with its scores, in a Parquet file for each rollout."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from plaudit.scoring import CompletionScores
from plaudit.types.scoring import Failed, FinishReason, NotApplicable, Outcome, Scored
from trainer_service.journal import CompletionsWritten
from trainer_service.training.samples import ScoredRollout

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
    uri = (
        PurePosixPath("jobs")
        / job_id
        / f"attempt-{attempt}"
        / "completions"
        / f"step-{rollout.step:06d}.parquet"
    )
    path = artifact_root / uri
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(_rows(rollout, attempt, mask_truncated), schema=SCHEMA)
    unfinished = path.with_name(f".{path.name}.unfinished")
    pq.write_table(table, unfinished)
    content = unfinished.read_bytes()
    unfinished.replace(path)
    return CompletionsWritten(
        step=rollout.step,
        uri=str(uri),
        row_count=table.num_rows,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _rows(rollout: ScoredRollout, attempt: int, mask_truncated: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for b, sample in enumerate(rollout.samples_B):
        truncated = sample.completion.finish_reason is FinishReason.LENGTH
        scored = not (rollout.rewards.failed_B[b] or rollout.rewards.not_applicable_B[b])
        moved = rollout.advantages.kept_B[b] and not (mask_truncated and truncated)
        rows.append(
            {
                "step": rollout.step,
                "attempt": attempt,
                "group_id": sample.group_id,
                "completion_id": sample.completion.completion_id,
                "prompt_text": sample.prompt.text,
                "completion_text": sample.completion.text,
                "token_count": sample.completion.token_count,
                "truncated": truncated,
                "reward": float(rollout.rewards.sums_B[b]) if scored else None,
                "advantage": float(rollout.advantages.advantages_B[b]) if moved else None,
                "outcomes": json.dumps(_outcomes(rollout.scores_B[b]), ensure_ascii=False),
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
