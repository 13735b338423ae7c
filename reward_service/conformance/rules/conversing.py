"""Rules that a plain conversation shows: each is about one way in which answers can be wrong."""

from __future__ import annotations

from typing import Final

from reward_service.conformance._faults import Fault
from reward_service.conformance._ledger import told
from reward_service.conformance._rule import Broken, Need, Skipped, optional, required
from reward_service.conformance._run import Run


@required(
    "R07",
    "opened",
    "The server checks them and answers `opened`, with the window and with those of the pending batches that "
    "it still holds.",
    "answer the first frame, open, with opened { max_in_flight_completions: 256 }, before anything else",
    need=Need.INFO,
)
async def opened(run: Run) -> str | None:
    """`open` is answered, and first."""
    plain = await run.plain()
    answer = plain.ledger.opened
    if answer is None or Fault.BEFORE_OPENED in plain.ledger.faults:
        assert plain.trouble is not None
        found, way_out = plain.trouble.found, ""
        if "INVALID_ARGUMENT" in found and not run.settings.config_json:
            way_out = "where the reward needs a config, give one with --config"
        raise Broken(found, plain.exchange, way_out)
    if answer.max_in_flight_completions < 1:
        raise Broken("opened.max_in_flight_completions is 0: nothing could ever be sent", plain.exchange)
    if answer.retained_batch_ids:
        raise Broken("opened names retained batches, and none were pending", plain.exchange)
    return f"window of {answer.max_in_flight_completions} completions"


@required(
    "R08",
    "batch-accepted",
    "The client sends `batch` frames, as long as the completions in flight stay within the window.",
    "accept what is within the window and the limits; where the rows are what is wrong, give rows of your "
    "own with --columns or --rows",
    need=Need.INFO,
)
async def batch_accepted(run: Run) -> str | None:
    """A good batch is not rejected."""
    await _free_of(run, Fault.REJECTED, Fault.ANSWERED_REJECTED)
    return None


@required(
    "R09",
    "one-result-each",
    "Every (completion, reward key) of an accepted batch gets exactly one result per stream.",
    "send one result for each completion of each group and each key of the batch, and not one more; what "
    "cannot be scored gets a failure",
    need=Need.INFO,
)
async def one_result_each(run: Run) -> str | None:
    """Nothing is missing, nothing comes twice."""
    plain = await run.plain()
    # A result under a wrong id is missing under the right one: R10 is about that.
    misnamed = Fault.UNKNOWN_ID in plain.ledger.faults
    await _free_of(run, *((Fault.DOUBLED,) if misnamed else (Fault.DOUBLED, Fault.MISSING)))
    return None


@required(
    "R10",
    "ids-echoed",
    "Results are joined by their ids: order means nothing.",
    "copy batch_id and completion_id as they came, character by character, and answer with the key, not the "
    "name, of the reward",
    need=Need.INFO,
)
async def ids_echoed(run: Run) -> str | None:
    """Results carry the ids that were sent."""
    await _free_of(run, Fault.UNKNOWN_ID)
    return None


@required(
    "R11",
    "outcome-given",
    "Outcome of one reward for one completion.",
    "set exactly one of score, not_applicable and failure in every result, also where the score is 0",
    need=Need.INFO,
)
async def outcome_given(run: Run) -> str | None:
    """Every result says what came of it."""
    await _free_of(run, Fault.NO_OUTCOME)
    return None


@required(
    "R12",
    "values",
    "Finite; within [Reward.min_value, Reward.max_value].",
    "declare the range that the reward has; answer a failure, and never a number, where there is no value",
    need=Need.INFO,
)
async def values(run: Run) -> str | None:
    """Scores are finite and within the declared range."""
    await _free_of(run, Fault.NOT_A_VALUE)
    outcomes = (await run.plain()).outcomes
    scores = [outcome.value for outcome in outcomes if outcome.kind == "score"]
    if not scores and outcomes:
        raise Skipped(
            f"no completion was scored ({told(outcomes[0])}); give rows that can be, with --columns or --rows"
        )
    return f"{len(scores)} scores, {min(scores):g} to {max(scores):g}" if scores else None


@required(
    "R13",
    "done-each",
    "When a batch has all its results, it gets `done`, its last frame",
    "send done { batch_id, counts } after the last result of each batch",
    need=Need.INFO,
)
async def done_each(run: Run) -> str | None:
    """Every batch is done, once."""
    await _free_of(run, Fault.NO_DONE, Fault.DONE_TWICE)
    return None


@required(
    "R14",
    "done-counts",
    "The counts add up to completions times rewards, so that a client can tell a lost frame from a finished "
    "batch.",
    "count the results of the batch by kind; with two rewards a completion counts twice",
    need=Need.INFO,
)
async def done_counts(run: Run) -> str | None:
    """The counts are those of what came."""
    await _free_of(run, Fault.DONE_COUNTS)
    return None


@required(
    "R15",
    "done-last",
    "Last frame about a batch.",
    "send done when the last result of the batch is on its way, and nothing of the batch after it",
    need=Need.INFO,
)
async def done_last(run: Run) -> str | None:
    """Nothing of a batch comes after its `done`."""
    await _free_of(run, Fault.AFTER_DONE)
    return None


@required(
    "R16",
    "frames",
    "At least 1, in no particular order.",
    "send frames that the proto file knows, results with at least one result, done and plain_scores among "
    "them only where open sets reads_bundled_done and reads_plain_scores, durations in protobuf's range, "
    "opened once, and no more frames than there is something to say",
    need=Need.INFO,
)
async def frames(run: Run) -> str | None:
    """Frames are readable, say something, and do not flood."""
    await _free_of(
        run,
        Fault.UNREADABLE,
        Fault.EMPTY_RESULTS,
        Fault.UNASKED,
        Fault.UNEVEN,
        Fault.NOT_A_DURATION,
        Fault.OPENED_AGAIN,
        Fault.FLOOD,
    )
    ledger = (await run.plain()).ledger
    if ledger.result_frames:
        return f"{ledger.result_count / ledger.result_frames:.1f} results in a frame"
    return None


@optional(
    "O04",
    "explanations",
    "Why, for people; at most 4 KiB.",
    "cut explanation, reason and message to 4 KiB, and send only metrics that are finite",
)
async def explanations(run: Run) -> str | None:
    """What is for people and charts is usable."""
    await _free_of(run, Fault.LONG_TEXT, Fault.BAD_METRIC)
    return None


async def _free_of(run: Run, *faults: Fault) -> None:
    plain = await run.plain()
    if plain.ledger.opened is None:
        raise Skipped("no session could be opened: R07")
    for fault in faults:
        if fault in plain.ledger.faults:
            trouble = f" ({plain.trouble.found})" if plain.trouble is not None else ""
            raise Broken(f"{plain.ledger.told(fault)}{trouble}", plain.exchange)


RULES: Final = (
    opened,
    batch_accepted,
    one_result_each,
    ids_echoed,
    outcome_given,
    values,
    done_each,
    done_counts,
    done_last,
    frames,
)
OPTIONAL_RULES: Final = (explanations,)
