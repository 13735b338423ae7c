"""Over gRPC, with two real reward servers of weights 0.7 and 0.3, of which one fails for a third.

The step is that of the same rewards answered in this process, which test_unscored_gradients.py compares with
plain TRL's on the batch without the unscored completions.
"""

import asyncio
import contextlib
import threading

import pytest
from test_unscored_gradients import (
    BATCH,
    FAILED,
    LONGEST,
    NOT_APPLICABLE,
    WEIGHTS,
    Gradients,
    assert_same_gradient,
    our_gradient,
    value,
)
from training_bench import ScriptedRollout, drifted_model, scripted_completions

from plaudit.scoring import RewardScorer
from plaudit.types.jobs import RewardBinding, RewardTarget
from reward_service import Failed, FailureCode, NotApplicable, RewardServer, reward
from trainer_service.journal import StepCompleted


def index_of(item):
    return int(item.completion.completion_id.split("-")[1])


@reward(description="Applies to all but one.")
async def style(item):
    return NotApplicable() if index_of(item) in NOT_APPLICABLE else value(index_of(item), "style")


@reward(description="Fails for a third.")
async def answer(item):
    if index_of(item) in FAILED:
        return Failed(FailureCode.INTERNAL, "gone")
    return value(index_of(item), "answer")


@contextlib.contextmanager
def serving(*rewards):
    """Each reward on a server of its own; yields their addresses."""
    ready, stop, ports = threading.Event(), threading.Event(), []

    async def serve():
        servers = [RewardServer([r], name=r.name) for r in rewards]
        ports.extend([await server.start() for server in servers])
        ready.set()
        await asyncio.to_thread(stop.wait)
        for server in servers:
            await server.stop(1.0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield [f"127.0.0.1:{port}" for port in ports]
    stop.set()
    thread.join(20)


@pytest.mark.parametrize("kl_coef", [0.0, 0.04])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_the_step_is_the_same_over_the_wire(make_bench, model_dir, loss_type, kl_coef):
    completions = scripted_completions(BATCH, LONGEST, seed=3)
    settings = {"loss_type": loss_type, "kl_coef": kl_coef}
    expected, here = our_gradient(
        make_bench, completions, accumulation=1, model=drifted_model(model_dir), **settings
    )
    with serving(style, answer) as addresses:
        targets = [
            RewardTarget(
                binding=RewardBinding(name=name, server=name, reward=name, weight=weight),
                addresses=(address,),
            )
            for (name, weight), address in zip(WEIGHTS.items(), addresses, strict=True)
        ]
        with RewardScorer(targets, session_scope="a-run", job_id="job", model="tiny") as scorer:
            assert scorer.wait_ready(20)
            bench = make_bench(
                scorer=scorer,
                weights=WEIGHTS,
                rollout=ScriptedRollout(completions),
                micro_batch_size=4,
                model=drifted_model(model_dir),
                max_steps=1,
                max_response_length=LONGEST,
                max_grad_norm=0.0,
                **settings,
            )
            gradients = Gradients()
            bench.trainer.add_callback(gradients)
            bench.trainer.train()

    assert_same_gradient(gradients.steps[0], expected)
    wired, local = (b.entries(StepCompleted)[0].metrics for b in (bench, here))
    assert wired["reward/answer/failed_fraction"] == 5 / 16
    assert wired["reward/style/failed_fraction"] == 0.0
    for name in ("reward_mean", "reward_std", "loss", "unscored_fraction", "small_group_fraction"):
        assert wired[name] == pytest.approx(local[name], rel=1e-5, abs=1e-6)
