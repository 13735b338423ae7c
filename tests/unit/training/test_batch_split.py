"""A batch over several devices: what cannot be split is refused with what works."""

import itertools
import re

import pytest

from trainer_service.training.batch_split import batch_violations


def violations(batch, world, *, group=8, micro=1, given=False, most=10_000, too_few=None):
    return batch_violations(
        batch,
        world_size=world,
        group_size=group,
        micro_batch_size=micro,
        micro_is_given=given,
        most=most,
        too_few=too_few,
    )


@pytest.mark.parametrize("world", [1, 2, 8])
def test_what_can_be_split_is(world):
    assert violations(64, world) == []
    assert violations(64, world, micro=8, given=True) == []


@pytest.mark.parametrize(
    ("batch", "world", "arguments", "way_out"),
    [
        # Three devices take a multiple of 3, and groups of 8 a multiple of 8.
        (64, 3, {}, "global_batch_size: 64 cannot be split evenly over 3 devices; 48 or 72 would work"),
        # Of passes of 4 each device has whole ones: a multiple of 12, and of 8.
        (64, 3, {"micro": 4, "given": True}, "48 or 72 would work"),
        (64, 3, {"micro": 5, "given": True}, "120 would work"),
        (8, 3, {}, "24 would work"),
        # The dataset allows no 24 completions.
        (8, 3, {"most": 16}, "8 on 2 devices with micro_batch_size 1 would work"),
        # It allows 24, but not with passes of 5 rows.
        (16, 3, {"micro": 5, "given": True, "most": 32}, "24 with micro_batch_size 4 would work"),
        (12, 8, {"group": 4}, "8 or 16 would work"),
        (64, 1, {"micro": 6}, "micro_batch_size: 6 does not divide global_batch_size (64); 4 would work"),
        (64, 2, {"micro": 64, "given": True}, "micro_batch_size: 64 does not divide the 32 rows that each"),
        (64, 2, {"micro": 64, "given": True}, "32 would work"),
        (64, 8, {"micro": 6}, "4 would work"),
    ],
)
def test_what_cannot_is_refused_with_what_works(batch, world, arguments, way_out):
    (violation,) = violations(batch, world, **arguments)
    assert way_out in f"{violation.field.removeprefix('hyperparameters.')}: {violation.message}"


def test_a_dataset_that_is_too_small():
    (violation,) = violations(64, 2, most=40, too_few="the dataset has 5")
    assert violation.message == "the dataset has 5; 40 would work"
    (violation,) = violations(64, 3, most=40, too_few="the dataset has 5")
    assert violation.message == "the dataset has 5; 24 would work"


def test_every_proposal_works():
    for batch, world, group, micro, prompts in itertools.product(
        (4, 8, 30, 64), (1, 2, 3, 8), (2, 3, 8), (1, 3, 4), (1, 4, 9)
    ):
        most = prompts * group
        if batch % group:
            continue
        too_few = "too few" if batch > most else None
        for violation in violations(
            batch, world, group=group, micro=micro, given=True, most=most, too_few=too_few
        ):
            told = violation.message.rpartition("; ")[2]
            devices = re.search(r"on (\d+) device", told)
            named_micro = re.search(r"micro_batch_size (\d+)", told)
            for size in re.findall(r"^\d+|(?<=or )\d+", told):
                of_batch = violation.field.endswith("global_batch_size")
                assert (
                    violations(
                        int(size) if of_batch else batch,
                        int(devices[1]) if devices else world,
                        group=group,
                        micro=int(named_micro[1]) if named_micro else micro if of_batch else int(size),
                        given=True,
                        most=most,
                    )
                    == []
                ), violation
                assert not of_batch or (0 < int(size) <= most and int(size) % group == 0)
