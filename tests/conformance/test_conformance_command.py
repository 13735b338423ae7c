"""The command: what it prints, and the status that it ends with."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

import grpc
import grpc.aio
import pytest
import trustme
import typer
from broken_results import DoublesAResult, LosesAResult
from conformance_process import PLAUDIT, conformance
from correct_server import CorrectServer, start
from typer.testing import CliRunner

from reward_service.conformance.__main__ import main


@pytest.fixture
async def broken() -> AsyncIterator[str]:
    server, port = await start(DoublesAResult())
    yield f"127.0.0.1:{port}"
    await server.stop(0)


async def test_a_report_for_people_names_rule_contract_finding_and_way_out(
    broken: str, tmp_path: Path
) -> None:
    junit = tmp_path / "junit.xml"
    ran = await conformance(broken, "--quick", "--timeout", "5", "--junit", str(junit))
    assert (ran.status, ran.err) == (1, "")
    assert "\x1b" not in ran.out  # no terminal, no colours
    lines = ran.out.splitlines()
    at = lines.index("FAIL     R09 one-result-each")
    assert lines[at + 1].split()[:3] == ["contract", "Every", "(completion,"]
    assert lines[at + 2].startswith("         found     a second result for batch ")
    assert lines[at + 3].startswith("         way out   send one result for each completion")
    assert any("  S  done " in line for line in lines[at:])
    assert "Required" in lines
    assert "Optional" in lines
    assert lines[-1].endswith("does not conform: R09.")
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.get("failures") == "1"
    (case,) = [case for case in suite if case.find("failure") is not None]
    assert case.get("name") == "R09 one-result-each"
    assert "a second result" in (case.findtext("failure") or "")


async def test_one_rule_can_be_checked_alone_as_json(broken: str) -> None:
    ran = await conformance(broken, "--rule", "one-result-each", "--rule", "R13", "--json", "--quick")
    assert ran.status == 1
    assert [(rule["id"], rule["status"]) for rule in ran.report["rules"]] == [
        ("R09", "fail"),
        ("R13", "pass"),
    ]
    assert ran.report["rules"][0]["exchange"]


async def test_nobody_there_is_told_with_status_5() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        ran = await conformance(address, "--timeout", "1", "--json", command=PLAUDIT)
    assert (ran.status, ran.out) == (5, "")
    assert f"{address} does not answer as a gRPC server within 1 s" in ran.err


async def test_what_is_no_grpc_server_is_told_with_status_5() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        ran = await conformance(f"127.0.0.1:{mute.getsockname()[1]}", "--timeout", "1")
    assert ran.status == 5
    assert "says nothing that gRPC or HTTP would" in ran.err


def refused(*arguments: str) -> str:
    """What the command says, in this process, where it ends before there is a connection."""
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def test_wrong_usage_is_told_with_status_2_and_all_at_once(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": 7}\nno json\n{"prompt": "x", "expected": [{"completion": 1, "score": 1}]}\n')
    told = refused("http://nowhere", "--config", "[1]", "--rows", str(rows))
    for word in (
        "HOST:PORT",
        "config: must be a JSON object",
        "rows, line 1",
        "rows, line 2",
        "rows, line 3",
    ):
        assert word in told
    told = refused("127.0.0.1:1", "--columns", "[]", "--drain-command", "x", "--drain-pid", "77777")
    assert "columns: must be a JSON object" in told
    assert "drain-command" in told
    assert "rows: " in refused("127.0.0.1:1", "--rows", str(tmp_path / "nowhere"))


def test_a_token_does_not_travel_openly(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    told = refused("example.com:443", "--token-file", str(token))
    assert "a token is not sent in plain text to example.com:443" in told
    assert "s3cret" not in told


def test_files_of_tls_are_checked_together(tmp_path: Path) -> None:
    told = refused("127.0.0.1:1", "--ca-file", str(tmp_path / "ca"), "--cert-file", str(tmp_path / "cert"))
    for word in ("ca-file: ", "cert-file: ", "give both"):
        assert word in told


async def test_a_reward_that_is_not_there_is_told_with_those_that_are(broken: str) -> None:
    ran = await conformance(broken, "--reward", "nope", "--quick")
    assert ran.status == 2
    assert '"nope" is not on offer; there are "last_number"' in ran.err


def test_a_rule_that_is_not_there_is_told_with_those_that_are() -> None:
    assert "R99 is no rule; there are R01" in refused("127.0.0.1:1", "--rule", "R99")


async def test_columns_and_config_reach_the_server() -> None:
    seen: list[tuple[str, int]] = []

    class Listens(CorrectServer):
        def value(self, group: object, completion: object) -> float:
            seen.append((self.config, group.columns["answer"].int_value))  # type: ignore[attr-defined]
            return super().value(group, completion)  # type: ignore[arg-type]

        def session_keys(self, opening: object) -> list[str]:
            self.config = opening.rewards[0].config_json  # type: ignore[attr-defined]
            return list(super().session_keys(opening))  # type: ignore[arg-type]

    server, port = await start(Listens())
    ran = await conformance(
        f"127.0.0.1:{port}",
        "--columns",
        '{"answer": 9007199254740993}',
        "--config",
        '{"a": 50}',
        "--rule",
        "R12",
    )
    await server.stop(0)
    assert ran.status == 0
    assert set(seen) == {('{"a": 50}', 9007199254740993)}


async def test_help_lists_the_options() -> None:
    ran = await conformance("--help", command=PLAUDIT)
    assert ran.status == 0
    for option in ("--reward", "--columns", "--rows", "--junit", "--timeout", "--quick", "--drain-command"):
        assert option in ran.out


async def test_a_token_is_sent_and_a_missing_one_is_told_with_status_4(tmp_path: Path) -> None:
    class Guard(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, details):  # type: ignore[no-untyped-def]
            if ("authorization", "Bearer s3cret") in details.invocation_metadata:
                return await continuation(details)

            async def refuse(request: object, context: grpc.aio.ServicerContext) -> None:  # type: ignore[type-arg]
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

            return grpc.unary_unary_rpc_method_handler(refuse)

    server, port = await start(LosesAResult(), interceptors=[Guard()])
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with_token = await conformance(
        f"127.0.0.1:{port}", "--token-file", str(token), "--quick", "--rule", "R10"
    )
    without = await conformance(f"127.0.0.1:{port}", "--quick", "--rule", "R10")
    await server.stop(0)
    assert with_token.status == 0
    assert (without.status, without.out) == (4, "")
    assert "--token-file" in without.err
    assert "s3cret" not in with_token.out + with_token.err


async def test_mutual_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    served, own = authority.issue_cert("rewards.example"), authority.issue_cert("author@example")
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    own.cert_chain_pems[0].write_to_path(cert)
    own.private_key_pem.write_to_path(key)
    pair = (served.private_key_pem.bytes(), b"".join(pem.bytes() for pem in served.cert_chain_pems))
    credentials = grpc.ssl_server_credentials([pair], authority.cert_pem.bytes(), require_client_auth=True)
    server, port = await start(CorrectServer(), credentials=credentials)
    address, to_the_end = f"localhost:{port}", ("--quick", "--rule", "R09", "--timeout", "5")
    trusting = ("--ca-file", str(ca), "--server-name", "rewards.example", *to_the_end)
    known = await conformance(address, *trusting, "--cert-file", str(cert), "--key-file", str(key))
    await server.stop(0)
    assert known.status == 0, known.out + known.err


async def test_json_is_one_object_also_where_a_server_speaks_control_characters() -> None:
    class Rude(CorrectServer):
        def info(self) -> object:  # type: ignore[override]
            info = super().info()
            info.server_name = "\x1b[2J\x00<&>]]>\ufffe"
            return info

        async def check(self, opening: object, context: grpc.aio.ServicerContext) -> None:  # type: ignore[type-arg]
            await context.abort(grpc.StatusCode.INTERNAL, "\x1b[31m\ufffe")

    server, port = await start(Rude())
    address = f"127.0.0.1:{port}"
    as_json = await conformance(address, "--quick", "--json")
    as_text = await conformance(address, "--quick", "--junit", "/dev/stderr")
    await server.stop(0)
    assert (as_json.status, as_text.status) == (1, 1)
    assert "\x1b" not in as_text.out
    assert json.loads(as_json.out)["server_name"] == "\x1b[2J\x00<&>]]>\ufffe"
    assert len(ElementTree.fromstring(as_text.err)) == 2
