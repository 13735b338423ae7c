"""Certificates, tokens, and servers of the kit that ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

from plaudit.service import Secrets
from reward_service import Item, ListenSecurity, Reward, RewardServer, reward

NAME = "judge.example"
"""What the servers' certificate calls them; they are dialled as 127.0.0.1."""
TOKEN = "correct-horse-battery"
OTHER_TOKEN = "wrong-horse-battery-staple"


@dataclass(frozen=True)
class Keys:
    """Files of servers, and the secrets folder of their clients.

    In the folder, by name: CA `judge` (the right one) and `stranger`; client certificates `trainer` and
    `stranger`; tokens `judge` and `stale`.
    """

    folder: Path
    secrets: Secrets

    @classmethod
    def make(cls, folder: Path) -> Keys:
        keys = cls(folder, Secrets(folder / "secrets"))
        keys.secrets.folder.mkdir()
        ca, stranger = trustme.CA(), trustme.CA()
        ca.cert_pem.write_to_path(folder / "ca.pem")
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        keys._write(folder / "server", ca.issue_cert(NAME))
        keys._write(folder / "by-address", ca.issue_cert("127.0.0.1"))
        keys._write(
            folder / "old", ca.issue_cert(NAME, not_before=long_ago, not_after=long_ago.replace(year=2021))
        )
        keys._write(folder / "impostor", stranger.issue_cert(NAME))
        for name, authority in (("judge", ca), ("stranger", stranger)):
            authority.cert_pem.write_to_path(keys.secrets.folder / f"{name}.ca.pem")
        for name, authority in (("trainer", ca), ("stranger", stranger)):
            keys._write(keys.secrets.folder / name, authority.issue_cert(f"{name}.example"))
        for name, token in (("judge", TOKEN), ("stale", OTHER_TOKEN)):
            keys._private(keys.secrets.folder / name, f"{token}\n")
        keys._private(folder / "tokens", f"some-other-token-too\n{TOKEN}\n")
        return keys

    def server(
        self, certificate: str = "server", *, mutual: bool = False, token: bool = False
    ) -> ListenSecurity:
        """How a server listens: with one of the certificates, asking for what is said."""
        return ListenSecurity(
            tls_cert=self.folder / f"{certificate}.cert.pem",
            tls_key=self.folder / f"{certificate}.key.pem",
            client_ca=self.folder / "ca.pem" if mutual else None,
            token_file=self.folder / "tokens" if token else None,
        )

    def options(self, *, token: bool = True, mutual: bool = True) -> list[str]:
        """The same as options of the command line."""
        certificate = [
            "--tls-cert",
            f"{self.folder}/server.cert.pem",
            "--tls-key",
            f"{self.folder}/server.key.pem",
        ]
        return [
            *certificate,
            *(["--client-ca", f"{self.folder}/ca.pem"] if mutual else []),
            *(["--token-file", f"{self.folder}/tokens"] if token else []),
        ]

    @staticmethod
    def _private(path: Path, text: str) -> None:
        path.touch(mode=0o600)
        path.write_text(text)

    @classmethod
    def _write(cls, path: Path, certificate: trustme.LeafCert) -> None:
        chain = "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)
        path.with_name(f"{path.name}.cert.pem").write_text(chain)
        key = certificate.private_key_pem.bytes().decode()
        cls._private(path.with_name(f"{path.name}.key.pem"), key)


def half(name: str = "half") -> Reward:
    """A reward that gives 0.5 to all."""

    @reward(name=name, min_value=0.0, max_value=1.0)
    async def give(items: list[Item]) -> list[float]:
        """Half for everyone."""
        return [0.5 for _ in items]

    return give


@asynccontextmanager
async def kit_server(
    security: ListenSecurity | None = None,
    *rewards: Reward,
    version: str = "1",
    port: int = 0,
) -> AsyncIterator[str]:
    """A server of the kit; its address."""
    server = RewardServer(rewards or [half()], name="judge", version=version)
    port = await server.start(f"127.0.0.1:{port}", security)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0.0)
