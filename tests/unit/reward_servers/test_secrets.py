"""Secrets by name: where they are looked for, and what is told of one that is missing or of no use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.rpc import Credentials
from plaudit.scoring import RewardScorer
from plaudit.service import Secrets, ServiceSettings
from plaudit.types.access import ServerAccess
from plaudit.types.jobs import RewardBinding, RewardTarget


class ExampleSettings(ServiceSettings):
    """Settings of no service."""

    section = "example"


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.write_bytes(data)
    path.chmod(mode)


def write_pair(folder: Path, name: str, certificate: trustme.LeafCert) -> None:
    write(folder / f"{name}.cert.pem", certificate.cert_chain_pems[0].bytes(), 0o644)
    write(folder / f"{name}.key.pem", certificate.private_key_pem.bytes())


def test_a_token_comes_from_the_variable_before_the_file_and_is_read_anew(
    secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(secrets.folder / "judge-a", b"from-the-file\n")
    assert secrets.token("judge-a") == "from-the-file"
    write(secrets.folder / "judge-a", b"rotated")
    assert secrets.token("judge-a") == "rotated"
    monkeypatch.setenv("PLAUDIT_CREDENTIAL_JUDGE_A", " from-the-variable ")
    assert secrets.token("judge-a") == "from-the-variable"


def test_what_is_missing_is_told_with_its_name_and_place(secrets: Secrets) -> None:
    with pytest.raises(FailedPreconditionError) as missing:
        secrets.token("judge-a")
    assert missing.value.reason == "SECRET_MISSING"
    assert missing.value.message == (
        'credential "judge-a" is missing here: set PLAUDIT_CREDENTIAL_JUDGE_A, or write '
        f"{secrets.folder / 'judge-a'} (mode 0600)"
    )
    with pytest.raises(FailedPreconditionError, match=r"judge-a\.ca\.pem"):
        secrets.ca("judge-a")
    with pytest.raises(FailedPreconditionError, match=r"judge-a\.cert\.pem"):
        secrets.key_pair("judge-a")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_refused(secrets: Secrets, mode: int) -> None:
    write(secrets.folder / "judge", b"token", mode)
    with pytest.raises(FailedPreconditionError, match=f"mode {mode:04o}.*chmod 600") as refused:
        secrets.token("judge")
    assert "token" not in refused.value.message.replace(str(secrets.folder), "")
    write_pair(secrets.folder, "client", trustme.CA().issue_cert("x.example"))
    (secrets.folder / "client.key.pem").chmod(mode)
    with pytest.raises(FailedPreconditionError, match="chmod 600"):
        secrets.key_pair("client")


@pytest.mark.parametrize("data", [b"", b"two words", b"two\nlines", b"caf\xc3\xa9", b"\xff\xfe", b"x" * 5000])
def test_what_is_no_token_is_refused_without_being_shown(secrets: Secrets, data: bytes) -> None:
    write(secrets.folder / "judge", data)
    with pytest.raises(FailedPreconditionError, match="no token: one line of printable ASCII") as refused:
        secrets.token("judge")
    assert "two" not in refused.value.message


def test_certificates_that_are_none_or_do_not_go_together_are_refused(secrets: Secrets) -> None:
    folder, ca = secrets.folder, trustme.CA()
    write(folder / "judge.ca.pem", b"-----BEGIN NONSENSE-----")
    with pytest.raises(FailedPreconditionError, match=r'CA "judge": .* holds no certificate in PEM'):
        secrets.ca("judge")
    first, second = ca.issue_cert("a.example"), ca.issue_cert("b.example")
    write_pair(folder, "mixed", first)
    write(folder / "mixed.key.pem", second.private_key_pem.bytes())
    with pytest.raises(FailedPreconditionError, match="no certificate and key in PEM that go together"):
        secrets.key_pair("mixed")
    locked = load_pem_private_key(first.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    write(folder / "mixed.key.pem", locked)
    with pytest.raises(FailedPreconditionError, match="a key has no password here"):
        secrets.key_pair("mixed")
    write(folder / "mixed.key.pem", first.private_key_pem.bytes())
    assert secrets.key_pair("mixed").key == first.private_key_pem.bytes()


def test_secrets_are_not_shown_by_accident(secrets: Secrets) -> None:
    write(secrets.folder / "judge", b"correct-horse")
    write_pair(secrets.folder, "trainer", trustme.CA().issue_cert("t.example"))
    access = ServerAccess.model_validate({"tls": {"client_certificate": "trainer"}, "credential": "judge"})
    loaded = Credentials.load(access, secrets)
    assert "correct-horse" not in repr(loaded)
    assert "PRIVATE KEY" not in repr(loaded)


def test_a_run_does_not_start_without_its_secrets_and_names_each(secrets: Secrets) -> None:
    def target(server: str, **access: object) -> RewardTarget:
        binding = RewardBinding(name=server, server=server, reward="half")
        return RewardTarget(
            binding=binding, addresses=("127.0.0.1:1",), access=ServerAccess.model_validate(access)
        )

    targets = [target("open"), target("a", credential="judge-a"), target("b", tls={"ca": "judge-b"})]
    with pytest.raises(InvalidArgumentError) as refused:
        RewardScorer(targets, session_scope="run", job_id="job", model="m", secrets=secrets)
    assert [v.field for v in refused.value.violations] == ["rewards[1].server", "rewards[2].server"]
    assert 'reward server "a": credential "judge-a" is missing here' in refused.value.message
    assert 'reward server "b": CA "judge-b" is missing here' in refused.value.message


def test_where_a_service_has_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plaudit.toml").touch()
    monkeypatch.setenv("PLAUDIT_CONFIG", str(tmp_path / "plaudit.toml"))
    monkeypatch.setenv("PLAUDIT_DATA_DIR", str(tmp_path / "data"))
    assert ExampleSettings.load().secrets.folder == tmp_path / "data" / "secrets"
    assert ExampleSettings.load(data_dir=tmp_path / "other").secrets.folder == tmp_path / "other" / "secrets"
    (tmp_path / "plaudit.toml").write_text('secrets_dir = "/etc/plaudit/secrets"\n')
    assert ExampleSettings.load().secrets.folder == Path("/etc/plaudit/secrets")
    monkeypatch.setenv("PLAUDIT_SECRETS_DIR", str(tmp_path / "shared"))
    assert ExampleSettings.load().secrets.folder == tmp_path / "shared"
    monkeypatch.setenv("PLAUDIT_EXAMPLE_SECRETS_DIR", str(tmp_path / "own"))
    assert ExampleSettings.load().secrets.folder == tmp_path / "own"
    assert os.environ["PLAUDIT_SECRETS_DIR"]
