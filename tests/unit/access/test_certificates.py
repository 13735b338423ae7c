"""Certificates of `plaudit certs`, judged by TLS itself and by OpenSSL's own verification."""

from __future__ import annotations

import asyncio
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from plaudit.cli._certificates import Authority
from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.service import Secrets


def authority(folder: Path, name: str = "plaudit") -> Authority:
    made = Authority(folder, name)
    assert made.make()
    return made


async def shake_hands(server: Path, client: Path, name: str, host: str) -> str:
    """A mutual handshake; the issuer that the client saw."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client / "plaudit.ca.pem"))
    serving.load_cert_chain(server / f"{name}.cert.pem", server / f"{name}.key.pem")
    serving.verify_mode = ssl.CERT_REQUIRED
    calling = ssl.create_default_context(cafile=str(client / "plaudit.ca.pem"))
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    calling.load_cert_chain(client / "client.cert.pem", client / "client.key.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1))
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=calling, server_hostname=host)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return str(dict(part[0] for part in certificate["issuer"])["organizationName"])


async def test_servers_and_clients_know_each_other_by_them(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    ca.issue("server", ["trainer", "10.0.0.5", "2001:db8::1"], tmp_path / "server")
    ca.issue("client", ["gateway"], tmp_path / "client")
    for host in ("trainer", "10.0.0.5", "2001:db8::1"):
        issuer = await shake_hands(tmp_path / "server", tmp_path / "client", "server", host)
        assert issuer == "Plaudit"
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake_hands(tmp_path / "server", tmp_path / "client", "server", "reward")
    other = authority(tmp_path / "other")
    other.issue("server", ["trainer"], tmp_path / "impostor")
    with pytest.raises(ssl.SSLCertVerificationError):
        await shake_hands(tmp_path / "impostor", tmp_path / "client", "server", "trainer")


def test_keys_are_for_their_owner_alone_and_the_secrets_folder_takes_them(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    issued = ca.issue("service", ["trainer"], tmp_path / "secrets")
    for key in (ca.key_file, issued.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    secrets = Secrets(tmp_path / "secrets")
    assert secrets.key_pair("service").key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert secrets.ca("plaudit") == tmp_path / "secrets" / "plaudit.ca.pem"
    left = issued.expires_at - datetime.now(UTC)
    assert timedelta(days=396) < left <= timedelta(days=397)


def test_what_is_there_and_good_is_kept(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    first = ca.issue("service", ["trainer", "127.0.0.1"], tmp_path)
    data = first.certificate.read_bytes(), first.key.read_bytes()
    again = ca.issue("service", ["127.0.0.1", "trainer"], tmp_path)
    assert (again.is_new, first.certificate.read_bytes(), first.key.read_bytes()) == (False, *data)
    assert not ca.make()
    assert ca.issue("service", ["trainer"], tmp_path).is_new
    assert ca.issue("service", ["trainer"], tmp_path, days=29).is_new is False
    assert ca.issue("short", ["trainer"], tmp_path, days=29).is_new
    assert ca.issue("short", ["trainer"], tmp_path).is_new
    first.key.write_bytes(ca.key_file.read_bytes())
    assert ca.issue("service", ["trainer"], tmp_path).is_new
    other = authority(tmp_path / "other")
    (tmp_path / "other").joinpath("service.cert.pem").write_bytes(first.certificate.read_bytes())
    (tmp_path / "other").joinpath("service.key.pem").write_bytes(first.key.read_bytes())
    assert other.issue("service", ["trainer"], tmp_path / "other").is_new


def test_no_certificate_outlives_its_ca(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    issued = ca.issue("service", ["trainer"], tmp_path, days=3650)
    root = x509.load_pem_x509_certificate(ca.certificate_file.read_bytes())
    assert issued.expires_at <= root.not_valid_after_utc
    leaf = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


@pytest.mark.parametrize("host", ["https://trainer", "a b", "", "trainer:7432x!", "*"])
def test_a_wrong_host_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidArgumentError, match="host"):
        authority(tmp_path).issue("service", [host], tmp_path)


def test_wrong_names_and_a_missing_ca_are_told(tmp_path: Path) -> None:
    with pytest.raises(FailedPreconditionError, match="plaudit certs init"):
        Authority(tmp_path, "plaudit").issue("service", ["a"], tmp_path)
    with pytest.raises(InvalidArgumentError, match="name"):
        authority(tmp_path).issue("../service", ["a"], tmp_path)
    with pytest.raises(InvalidArgumentError, match="ca"):
        Authority(tmp_path, "../x")
    ca = Authority(tmp_path, "plaudit")
    ca.key_file.chmod(0o644)
    with pytest.raises(FailedPreconditionError, match="chmod 600"):
        ca.issue("service", ["a"], tmp_path)
