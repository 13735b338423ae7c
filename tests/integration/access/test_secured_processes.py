"""Gateway and trainer as processes that other machines can reach: TLS, tokens, and what a person is told."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from stack import Service, wait_for

from plaudit import Client
from plaudit.client import Tls
from plaudit.errors import FailedPreconditionError, UnavailableError
from plaudit.types.roles import Role

PLAUDIT = str(Path(sys.executable).parent / "plaudit")


def plaudit(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PLAUDIT_")}
    return subprocess.run(
        [PLAUDIT, *arguments], capture_output=True, text=True, timeout=60, env={**clean, **environment}
    )


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@dataclass
class Installation:
    folder: Path
    gateway: Service
    trainer: Service

    @property
    def ca(self) -> Path:
        return self.folder / "data" / "secrets" / "plaudit.ca.pem"

    @property
    def grpc(self) -> str:
        return f"localhost:{self.gateway.addresses['grpc_address'].rpartition(':')[2]}"

    @property
    def https(self) -> str:
        return f"https://127.0.0.1:{self.gateway.addresses['http_address'].rpartition(':')[2]}"

    def token(self, name: str, role: Role) -> str:
        done = plaudit(
            "token", "create", "--name", name, "--role", role.value, "--expires", "12h", "--json",
            "--data-dir", str(self.folder / "data"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["secret"]

    def run(self, *arguments: str, token: str | None) -> subprocess.CompletedProcess[str]:
        environment = {"PLAUDIT_ADDRESS": self.grpc, "PLAUDIT_CA_FILE": str(self.ca)}
        return plaudit(*arguments, **environment, **({"PLAUDIT_TOKEN": token} if token else {}))


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("secured")
    secrets = folder / "data" / "secrets"
    assert plaudit("certs", "init", "--folder", str(folder / "ca")).returncode == 0
    issued = plaudit(
        "certs", "issue", "service", "--folder", str(folder / "ca"), "--out", str(secrets),
        "--host", "localhost", "--host", "127.0.0.1",
    )  # fmt: skip
    assert issued.returncode == 0, issued.stderr
    private(secrets / "trainer", "the-token-of-another-trainer\n")
    tls = {
        "tls_cert": f"{secrets}/service.cert.pem",
        "tls_key": f"{secrets}/service.key.pem",
    }
    tokens = private(folder / "tokens", "a-token-for-this-trainer\n")
    (folder / "plaudit.toml").touch()
    shared = {
        "PLAUDIT_DATA_DIR": str(folder / "data"),
        "PLAUDIT_CONFIG": str(folder / "plaudit.toml"),
        "PLAUDIT_TRAINER_SECURITY": json.dumps(
            {**tls, "client_ca": f"{secrets}/plaudit.ca.pem", "token_file": str(tokens)}
        ),
        "PLAUDIT_GATEWAY_SECURITY": json.dumps(tls),
        "PLAUDIT_GATEWAY_ALLOWED_HOSTS": json.dumps(["plaudit.example"]),
        "PLAUDIT_GATEWAY_REWARD_SERVERS": "{}",
        "PLAUDIT_GATEWAY_POLL_SECONDS": "0.2",
    }
    trainer = Service("trainer", "trainer_service", {"address": "--address"}, folder, shared)
    trainer.addresses["address"] = "0.0.0.0:0"
    options = {"grpc_address": "--grpc-address", "http_address": "--http-address"}
    gateway = Service("gateway", "gateway", options, folder, shared)
    gateway.addresses = dict.fromkeys(options, "0.0.0.0:0")
    try:
        trainer.start()
        port = trainer.addresses["address"].rpartition(":")[2]
        access = {"tls": {"ca": "plaudit", "client_certificate": "service"}, "credential": "trainer"}
        shared["PLAUDIT_GATEWAY_TRAINERS"] = json.dumps([{"address": f"127.0.0.1:{port}", **access}])
        gateway.start()
        yield Installation(folder, gateway, trainer)
    finally:
        gateway.stop()
        trainer.stop()


@pytest.fixture(scope="module")
def admin(installation: Installation) -> str:
    return installation.token("admin", Role.ADMIN)


@pytest.mark.parametrize("module", ["gateway", "trainer_service"])
def test_an_open_address_without_tls_is_refused_with_the_way_out(module: str, tmp_path: Path) -> None:
    option = "--grpc-address" if module == "gateway" else "--address"
    done = subprocess.run(
        [sys.executable, "-m", module, option, "0.0.0.0:0", "--data-dir", str(tmp_path)],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "can be reached from other machines" in done.stderr
    assert "tls_cert" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_sdk_calls_by_tls_and_token(installation: Installation, admin: str) -> None:
    tls = Tls(ca_file=installation.ca)
    with Client(installation.grpc, token=admin, tls=tls) as client:
        assert client.tokens.caller().name == "admin"
        assert list(client.datasets.list())
    named = installation.grpc.replace("localhost", "127.0.0.1")
    with Client(named, token=admin, tls=Tls(ca_file=installation.ca, server_name="localhost")) as client:
        assert client.tokens.caller().role is Role.ADMIN
    for wrong in (False, True):  # plain text, and the CAs of the machine
        client = Client(installation.grpc, token=admin, tls=wrong, retry_seconds=0.1)
        with client, pytest.raises(UnavailableError):
            client.tokens.caller()
    with pytest.raises(FailedPreconditionError, match="not sent in plain text"):
        Client("10.0.0.9:7430", token=admin)


def test_the_command_tells_by_its_status_and_words_what_to_do(installation: Installation, admin: str) -> None:
    shown = installation.run("token", "show", token=admin)
    assert (shown.returncode, shown.stderr) == (0, "")
    nobody = installation.run("dataset", "list", token=None)
    assert nobody.returncode == 4
    assert "PLAUDIT_TOKEN" in nobody.stderr
    wrong = installation.run("dataset", "list", token="vk_wrong")
    assert wrong.returncode == 4
    assert "plaudit token create" in wrong.stderr
    viewer = installation.token("viewer", Role.VIEWER)
    assert installation.run("dataset", "list", token=viewer).returncode == 0
    weak = installation.run("reward-server", "add", "judge", "127.0.0.1:1", token=viewer)
    assert weak.returncode == 4
    assert "has the role viewer" in weak.stderr
    listed = installation.run("token", "list", token=admin)
    assert "viewer" in listed.stdout
    assert viewer not in listed.stdout
    assert installation.run("token", "revoke", "viewer", token=admin).returncode == 0
    assert installation.run("dataset", "list", token=viewer).returncode == 4
    assert "TokenService/RevokeToken" in installation.run("token", "audit", token=admin).stdout
    file = private(installation.folder / "token-file", f"{admin}\n")
    by_file = ("--token-file", str(file), "--ca-file", str(installation.ca), "token", "show", "--json")
    found = plaudit(*by_file, PLAUDIT_ADDRESS=installation.grpc, PLAUDIT_TOKEN="vk_wrong")
    assert json.loads(found.stdout)["name"] == "admin"
    file.chmod(0o644)
    refused = plaudit(*by_file, PLAUDIT_ADDRESS=installation.grpc)
    assert refused.returncode == 2
    assert "chmod 600" in refused.stderr


def test_rest_answers_by_tls_to_its_names(installation: Installation, admin: str) -> None:
    context = ssl.create_default_context(cafile=str(installation.ca))
    headers = {"Authorization": f"Bearer {admin}"}
    with httpx2.Client(base_url=installation.https, verify=context, headers=headers, trust_env=False) as http:
        assert http.get("/v1/me").json()["name"] == "admin"
        for host, status in (("plaudit.example", 200), ("10.1.2.3:7431", 200), ("evil.example", 403)):
            assert http.get("/v1/me", headers={"Host": host}).status_code == status
        page = {"Host": "plaudit.example", "Origin": "https://plaudit.example"}
        assert http.get("/v1/me", headers=page).status_code == 200
        for origin in ("http://plaudit.example", "https://evil.example", "null"):
            assert http.get("/v1/me", headers={**page, "Origin": origin}).status_code == 403
    port = installation.https.rpartition(":")[2]
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(f"http://127.0.0.1:{port}/health", trust_env=False)


def test_a_trainer_is_met_by_certificate_and_token_and_a_new_token_is_taken_up(
    installation: Installation,
) -> None:
    def log_has(words: str) -> bool:
        return words in installation.gateway.log()

    wait_for("the refusal", lambda: log_has("the token is none that this server knows"))
    assert not log_has("a trainer answers")
    private(installation.folder / "data" / "secrets" / "trainer", "a-token-for-this-trainer\n")
    wait_for("the trainer", lambda: log_has("a trainer answers"))


def test_no_secret_stands_in_a_log(installation: Installation, admin: str) -> None:
    logs = installation.gateway.log() + installation.trainer.log()
    assert logs
    for secret in (admin, "a-token-for-this-trainer", "the-token-of-another-trainer"):
        assert secret not in logs
