"""Clocks inside a trainer, ours or TRL's own, and the turns in which it takes its steps."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TextIO

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.trainer.grpo_trainer import GRPOTrainer

from against_trl.lengths import PlannedEnds
from against_trl.memory import TensorWeigher, resident_bytes
from against_trl.reward import scoring_seconds
from against_trl.work import RESPONSE_LENGTH, STAGES, WEIGH, Work, planned_lengths


def own_stdout() -> TextIO:
    """The stdout of this process for us alone: whatever else prints goes to stderr from now on."""
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return reports


class StepTurns(TrainerCallback):
    """Takes one training step for each line of stdin, and reports where time went, and memory.

    A turn is everything from one step's end to the next one's: reading data, logging and journals are in it.
    Add it last, so that what other callbacks do at the end of a step is in it as well.
    """

    def __init__(self, trainer: GRPOTrainer, work: Work, reports: TextIO) -> None:
        self._reports = reports
        tokenizer, model = trainer.processing_class, trainer.model
        assert isinstance(tokenizer, PreTrainedTokenizerBase) and isinstance(model, PreTrainedModel)
        self._tokenizer = tokenizer
        self._clock = StageClock()
        self._completions: list[list[int]] = []
        self._finished_at: dict[int, float] = {}
        self._optimizer_began = (0.0, 0.0)
        self._began = (0.0, 0.0)
        self._weigher: TensorWeigher | None = None
        self._resident_at_start = 0
        PlannedEnds(
            model,
            lengths_B=planned_lengths(work.lengths),
            longest=RESPONSE_LENGTH,
            end_token_id=tokenizer.eos_token_id,
        )
        clock = self._clock
        clock.time(trainer, "_generate_single_turn", lambda: "generation", self._note_completions)
        clock.time(
            trainer,
            "_get_per_token_logps_and_entropies",
            lambda: "policy_forward" if torch.is_grad_enabled() else "reference_forward",
        )
        clock.time(trainer, "_calculate_rewards", lambda: "score_wait")
        clock.time(trainer.accelerator, "backward", lambda: "backward")
        trainer.add_callback(self)

    def time(self, trainer: GRPOTrainer, method: str, stage: str) -> None:
        """Counts one more method of the trainer towards a stage."""
        self._clock.time(trainer, method, lambda: stage)

    def note_finished(self, index: int) -> None:
        """Completion `index` of the step was sent to be scored."""
        self._finished_at[index] = time.perf_counter() - self._began[0]

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._resident_at_start = resident_bytes()
        self._say({"event": "ready"})
        self._await_turn()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._optimizer_began = time.perf_counter(), time.thread_time()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._clock.add("optimizer", self._optimizer_began)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        step_seconds = time.perf_counter() - self._began[0]
        cpu_seconds = time.process_time() - self._began[1]
        texts = self._tokenizer.batch_decode(self._completions, skip_special_tokens=True)
        scoring = [scoring_seconds(text) for text in texts]
        seconds, thread_seconds = self._clock.seconds, self._clock.thread_seconds
        self._say(
            {
                "event": "turn",
                "step": step_seconds,
                "step_cpu": cpu_seconds,
                **{stage: seconds[stage] for stage in STAGES},
                **{f"{stage}_cpu": thread_seconds[stage] for stage in STAGES},
                "rest": step_seconds - sum(seconds.values()),
                "rest_cpu": cpu_seconds - sum(thread_seconds.values()),
                "lengths": (lengths := sorted(map(len, self._completions))),
                "tokens": sum(lengths),
                "scoring_seconds": sum(scoring),
                "queue": [(at, scoring[index]) for index, at in self._finished_at.items()],
                "score_wait_began": self._clock.last_began["score_wait"] - self._began[0],
                "peak_rss_bytes": (peak := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
                "added_rss_bytes": peak - self._resident_at_start,
                "peak_tensor_bytes": None if self._weigher is None else self._weigher.stop(),
            }
        )
        if state.global_step < state.max_steps:
            self._await_turn()

    def _await_turn(self) -> None:
        asked = sys.stdin.readline().strip()
        if not asked:
            # Nobody asks for more: there is nothing to save.
            os._exit(0)
        self._weigher = TensorWeigher() if asked == WEIGH else None
        self._clock.reset()
        self._completions = []
        self._finished_at.clear()
        self._began = time.perf_counter(), time.process_time()

    def _say(self, message: dict[str, Any]) -> None:
        self._reports.write(json.dumps(message) + "\n")
        self._reports.flush()

    def _note_completions(self, result: tuple[list[list[int]], object]) -> None:
        self._completions = result[0]


class StageClock:
    """Adds up wall time, and processor time of this thread, by stage.

    A stage inside another one counts for itself alone: the policy's pass is taken before rewards are waited
    for. `last_began` says when a stage was last entered, or gone on with after an inner one.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.thread_seconds: defaultdict[str, float] = defaultdict(float)
        self.last_began: dict[str, float] = {}
        self._began = 0.0
        self._inner = (0.0, 0.0)

    def reset(self) -> None:
        """Begins anew."""
        self.seconds.clear()
        self.thread_seconds.clear()

    def add(self, stage: str, began: tuple[float, float], inner: tuple[float, float] = (0.0, 0.0)) -> None:
        """Adds the time since `began`, less that of stages inside: perf_counter, thread_time."""
        self.seconds[stage] += time.perf_counter() - began[0] - inner[0]
        self.thread_seconds[stage] += time.thread_time() - began[1] - inner[1]

    def time(
        self,
        owner: Any,
        name: str,
        stage: Callable[[], str],
        note: Callable[[Any], None] = lambda result: None,
    ) -> None:
        """Times every call of a method of `owner`, and shows `note` what it returns."""
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            outer, self._inner = self._inner, (0.0, 0.0)
            began = time.perf_counter(), time.thread_time()
            self._began = began[0]
            result = method(*args, **kwargs)
            name_of_stage = stage()
            self.last_began[name_of_stage] = self._began
            self.add(name_of_stage, began, self._inner)
            self._began = time.perf_counter()
            self._inner = outer[0] + self._began - began[0], outer[1] + time.thread_time() - began[1]
            note(result)
            return result

        setattr(owner, name, timed)
