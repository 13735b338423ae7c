"""What each class of verbs exits with, and what it prints, on a real gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sdk_gateway import JOB, start_without_trainer
from stack import Stack

from plaudit import Client
from plaudit.client import models

Cli = Callable[..., tuple[int, str, str]]

NOWHERE = "job_00000000000000000000000000"


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    return str(tmp_path / "job.json")


@pytest.fixture
def job(gateway: Stack) -> Iterator[str]:
    with Client(gateway.grpc_address) as client:
        made = client.training_jobs.submit(JOB)
        yield made.id
        if not made.refresh().status.is_terminal:
            made.cancel()


def test_a_clone_that_is_only_checked_is_shown_as_a_job_of_a_file(cli: Cli, job: str, job_file: str) -> None:
    of_file, of_clone = cli("job", "submit", job_file, "--dry-run"), cli("job", "clone", job, "--dry-run")
    assert of_file == of_clone
    assert of_clone[0] == 0
    assert "memory: " in of_clone[1]
    # The source's rewards but for one field.
    status, out, _ = cli("job", "clone", job, "--dry-run", "--set", "rewards[0].weight=0.25")
    assert (status, out) == (0, of_clone[1].replace("weight = 1.0", "weight = 0.25"))
    assert out != of_clone[1]
    status, _, told = cli("job", "clone", job, "--set", "rewards[1].weight=0.25")
    assert status == 2 and "the last entry of rewards is rewards[0]" in told


def test_done_is_0(cli: Cli, job: str, job_file: str) -> None:
    for verb in (
        ["job", "list"],
        ["job", "get", job],
        ["job", "metrics", job],
        ["job", "metrics", job, "--csv"],
        ["job", "completions", job, "--failed"],
        ["job", "events", job],
        ["job", "logs", job],
        ["job", "submit", job_file, "--dry-run"],
        ["job", "pause", job, "--wait"],
        ["job", "resume", job],
        ["job", "cancel", job],
        ["dataset", "list"],
        ["dataset", "get", "builtin:additions"],
        ["reward", "list"],
        ["reward-server", "get", "builtin"],
        ["reward-function", "list"],
        ["model", "list"],
        ["rescore", "list"],
        ["version"],
    ):
        status, out, err = cli(*verb)
        assert (status, "error" in err) == (0, False), (verb, out, err)


def test_a_job_without_metrics_says_so(cli: Cli, job: str) -> None:
    assert "no metric loss yet; there is none of any name" in cli("job", "metrics", job, "--key", "loss")[2]
    assert "no metrics yet: no step is complete" in cli("job", "metrics", job)[2]


def test_step_0_is_a_step(cli: Cli, job: str) -> None:
    status, _, told = cli("job", "metrics", job, "--from-step", "5", "--to-step", "0")
    assert (status, "to_step: 0 lies before from_step (5)" in told) == (2, True)
    # Without evaluations nothing has this step, and it stands for all.
    assert cli("job", "completions", job, "--step", "0")[0] == 0
    assert cli("job", "completions", job, "--step", "0", "--evaluations")[0] == 0


def test_a_state_that_forbids_it_is_1(cli: Cli, job: str) -> None:
    assert cli("job", "resume", job)[0] == 1
    assert cli("job", "cancel", job)[0] == 0
    status, _, told = cli("job", "pause", job, "--wait")
    assert status == 1
    assert "cancelled" in told
    # A job that was cancelled was not completed.
    assert cli("job", "watch", job)[0] == 1


@pytest.mark.parametrize(
    "verb",
    [
        ["job", "get"],
        ["job", "lst"],
        ["job", "submit", "missing.toml"],
        ["job", "compare", "job_1"],
        ["job", "compare", "job_1", "job_1"],
        ["job", "list", "--status", "nonsense"],
        ["job", "get", "job_1", "--address", "nonsense"],
        ["dataset", "upload", "missing.jsonl"],
        ["reward-server", "add", "Bad Name", "nowhere"],
        ["init", "--nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(cli: Cli, verb: list[str]) -> None:
    status, out, told = cli(*verb)
    assert status == 2
    assert out == ""
    assert told != ""


def test_a_wrong_job_is_2_and_names_its_fields(cli: Cli, job_file: str) -> None:
    changes = ["--set", "hyperparameters.learning_rate=-1", "--set", "output_name=a b"]
    status, _, told = cli("job", "submit", job_file, *changes)
    assert status == 2
    assert "hyperparameters.learning_rate: -1 is refused" in told
    assert "output_name:" in told
    status, _, told = cli("job", "submit", job_file, "--set", "hyperparameters.max_step=1")
    assert (status, "did you mean hyperparameters.max_steps" in told) == (2, True)


@pytest.mark.parametrize(
    "verb",
    [
        ["job", "get", NOWHERE],
        ["job", "watch", NOWHERE],
        ["job", "cancel", NOWHERE],
        ["job", "metrics", NOWHERE],
        ["job", "completions", NOWHERE],
        ["job", "compare", NOWHERE, "job_2"],
        ["job", "clone", NOWHERE],
        ["job", "logs", NOWHERE],
        ["job", "delete", NOWHERE],
        ["dataset", "get", "nowhere"],
        ["dataset", "rows", "nowhere"],
        ["reward-server", "get", "nowhere"],
        ["reward-function", "get", "nowhere"],
        ["model", "get", "nowhere"],
        ["model", "download", "nowhere"],
        ["rescore", "get", "rescore_00000000000000000000000000"],
    ],
    ids=lambda verb: " ".join(verb[:2]),
)
def test_what_does_not_exist_is_3(cli: Cli, verb: list[str]) -> None:
    status, out, told = cli(*verb)
    assert (status, out) == (3, ""), told
    assert told.startswith("error: ")


def test_a_token_that_is_missing_wrong_or_too_weak_is_4(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack(Path(tmp_path_factory.mktemp("asks")))
    try:
        start_without_trainer(stack, {"PLAUDIT_GATEWAY_REQUIRE_TOKENS": "true"})
        at = ["--address", stack.grpc_address]
        assert cli("job", "list", *at)[0] == 4
        monkeypatch.setenv("PLAUDIT_TOKEN", "wrong")
        status, _, told = cli("job", "list", *at)
        assert status == 4
        assert "token" in told
        status, out, _ = cli("doctor", *at)
        assert status == 1
        assert "set PLAUDIT_TOKEN" in out
    finally:
        stack.stop()


@pytest.mark.parametrize(
    "verb",
    [["job", "list"], ["job", "watch", NOWHERE], ["dataset", "list"], ["reward", "list"], ["model", "list"]],
    ids=" ".join,
)
def test_a_gateway_that_is_not_there_is_5(cli: Cli, verb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plaudit.cli._output._RETRY_SECONDS", 0.1)
    status, out, told = cli(*verb, "--address", "127.0.0.1:1")
    assert (status, out) == (5, "")
    assert "is it running?" in told


def test_an_interrupted_wait_is_130(gateway: Stack, job_file: str) -> None:
    waiting = subprocess.Popen(
        [Path(sys.executable).parent / "plaudit", "job", "submit", job_file, "--wait"],
        env={**os.environ, "PLAUDIT_ADDRESS": gateway.grpc_address},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    job_id, status = waiting.stderr.readline().split()[:2]
    assert status == "queued"
    waiting.send_signal(signal.SIGINT)
    out, told = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (130, "")
    assert f"plaudit job cancel {job_id}" in told
    assert "Traceback" not in told
    with Client(gateway.grpc_address) as client:
        client.training_jobs.cancel(job_id)


def test_doctor_on_a_machine_with_a_gateway(
    cli: Cli, gateway: Stack, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAUDIT_DATA_DIR", str(gateway.folder))
    monkeypatch.setenv("PLAUDIT_GATEWAY_HTTP_ADDRESS", gateway.gateway.addresses["http_address"])
    # The gateway knows its trainers, whatever this machine's configuration names.
    monkeypatch.setenv("PLAUDIT_GATEWAY_TRAINERS", '["127.0.0.1:2"]')
    status, out, _ = cli("doctor", "--json")
    found = {check["name"]: check for check in json.loads(out)}
    assert status == 1
    for name in (
        "version",
        "configuration",
        "disk",
        "extras",
        "gateway",
        "rest",
        "clocks",
        "reward server builtin",
    ):
        assert found[name]["state"] == "ok", found[name]
    # The gateway of these tests has none; the job that waits for one is told too.
    assert found["trainers"]["state"] == "fail"
    assert "trainer 127.0.0.1:2" not in found
    assert found[f"job {job}"]["state"] == "warn"

    monkeypatch.setenv("PLAUDIT_CONFIG", "missing.toml")
    status, out, _ = cli("doctor", "--json", "--address", "127.0.0.1:1")
    found = {check["name"]: check for check in json.loads(out)}
    assert status == 1
    assert (found["configuration"]["state"], found["gateway"]["state"]) == ("fail", "fail")


def test_doctor_asks_the_gateway_for_its_trainers_and_the_configuration_only_without_one(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainers(address: str) -> dict[str, dict[str, str]]:
        checks = json.loads(cli("doctor", "--json", "--address", address)[1])
        return {check["name"]: check for check in checks if check["name"].startswith("trainer")}

    stack = Stack(Path(tmp_path_factory.mktemp("away")))
    try:
        start_without_trainer(stack, {"PLAUDIT_GATEWAY_TRAINERS": '["127.0.0.1:1"]'})
        monkeypatch.setenv("PLAUDIT_GATEWAY_TRAINERS", '["127.0.0.1:2"]')
        with Client(stack.grpc_address) as client:
            while client.trainers.list()[0].state is models.TrainerState.NOT_ASKED:
                time.sleep(0.05)
        found = trainers(stack.grpc_address)
        assert list(found) == ["trainer 127.0.0.1:1"]
        assert found["trainer 127.0.0.1:1"]["state"] == "fail"
        assert "start it" in found["trainer 127.0.0.1:1"]["way_out"]
    finally:
        stack.stop()

    monkeypatch.setattr("plaudit.cli._output._RETRY_SECONDS", 0.1)
    assert list(trainers("127.0.0.1:1")) == ["trainer 127.0.0.1:2"]
    monkeypatch.setenv("PLAUDIT_GATEWAY_TRAINERS", "[]")
    assert "names none" in trainers("127.0.0.1:1")["trainers"]["found"]
    monkeypatch.delenv("PLAUDIT_GATEWAY_TRAINERS")
    monkeypatch.setenv("PLAUDIT_TRAINER_ADDRESS", "127.0.0.1:3")
    assert list(trainers("127.0.0.1:1")) == ["trainer 127.0.0.1:3"]


def test_output_has_no_colours_where_it_is_no_terminal(cli: Cli, job: str) -> None:
    for verb in (["job", "list"], ["doctor"], ["job", "get", job], ["--help"]):
        assert "\x1b" not in cli(*verb)[1]


def test_a_shell_completes_commands_options_and_what_the_gateway_knows(gateway: Stack, job: str) -> None:
    def completed(line: str) -> str:
        done = subprocess.run(
            [Path(sys.executable).parent / "plaudit"],
            env={
                **os.environ,
                "PLAUDIT_ADDRESS": gateway.grpc_address,
                "_PLAUDIT_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "job" in completed("plaudit j").split()
    assert {"pause", "submit", "compare"} <= set(completed("plaudit job ").split())
    assert "--dry-run" in completed("plaudit job submit --d").split()
    assert job in completed(f"plaudit job get {job[:8]}").split()
    assert "builtin" in completed("plaudit reward-server get b").split()


def test_completion_is_installed_for_a_shell(tmp_path: Path) -> None:
    done = subprocess.run(
        # The shell is the one it is called from; `exit` keeps bash from becoming the command.
        ["bash", "-c", f"{Path(sys.executable).parent}/plaudit --install-completion; exit $?"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "bash completion installed" in done.stdout
    assert any("plaudit" in path.name for path in tmp_path.rglob("*"))
