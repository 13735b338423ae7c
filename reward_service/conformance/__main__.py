"""`python -m reward_service.conformance`, which `plaudit reward conformance` runs.

Exit status: 0 all required rules are kept, 1 some are not, 2 usage, 4 the server wants another credential,
5 nothing answers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from plaudit.errors import FieldViolation, InvalidArgumentError, PlauditError, UnauthenticatedError
from plaudit.service import configure_logging
from plaudit.types.addresses import check_address
from reward_service.conformance import (
    Level,
    Row,
    Settings,
    Target,
    Verdict,
    as_json,
    as_junit,
    read_rows,
    row_of_columns,
    run_suite,
)
from reward_service.conformance._report import print_summary, print_verdict
from reward_service.conformance._settings import object_of

EXIT_BROKEN: Final = 1
EXIT_USAGE: Final = 2
EXIT_AUTH: Final = 4
EXIT_UNAVAILABLE: Final = 5
EXIT_INTERRUPTED: Final = 130

_WIDE: Final = 1_000


def main(
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where the server listens.", show_default=False)
    ],
    reward: Annotated[
        str, typer.Option(help="Which of its rewards. Default: the first that opens.", show_default=False)
    ] = "",
    config: Annotated[str, typer.Option(help="The reward's config, a JSON object.", show_default=False)] = "",
    columns: Annotated[
        str,
        typer.Option(
            help='Columns of the rows that are sent, a JSON object. Default: {"answer": 72}, and 72 for '
            "each column that the reward requires.",
            show_default=False,
        ),
    ] = "",
    rows: Annotated[
        Path | None,
        typer.Option(
            help='JSONL file of rows: "prompt", columns, and "expected", a list of {"completion", "score"}.',
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3600.0, help="Longest silence of the server, in seconds.")
    ] = 30.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Send less, and leave out what takes a minute.")
    ] = False,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="Check this rule only, for example R09. May be repeated.", show_default=False),
    ] = None,
    as_json_object: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write a JUnit XML file, for build servers.", show_default=False)
    ] = None,
    drain_command: Annotated[
        str, typer.Option(help="Shell command that tells the server to stop.", show_default=False)
    ] = "",
    drain_pid: Annotated[
        int | None, typer.Option(min=2, help="Process to send SIGTERM to, instead.", show_default=False)
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS, by the system's authorities.")] = False,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates of the authorities to trust, PEM.", show_default=False)
    ] = None,
    cert_file: Annotated[
        Path | None, typer.Option(help="This client's certificate, PEM, for mutual TLS.", show_default=False)
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="Its private key, PEM.", show_default=False)] = None,
    server_name: Annotated[
        str, typer.Option(help="Name in the server's certificate, if not the host.", show_default=False)
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File that holds the bearer token.", show_default=False)
    ] = None,
) -> None:
    """Run every rule of the contract against a live reward server, in any language.

    Exit status: 0 all required rules are kept, 1 some are not, 2 usage, 4 credentials, 5 nothing answers.
    """
    configure_logging("conformance", "warning")
    try:
        settings = _settings(
            Target(address, tls, ca_file, cert_file, key_file, server_name, _token(token_file)),
            reward=reward, config=config, columns=columns, rows=rows, timeout=timeout, quick=quick,
            rules=rule or [], drain_command=drain_command, drain_pid=drain_pid,
        )  # fmt: skip
        status = _run(settings, as_json_object, junit)
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        status = (
            EXIT_USAGE
            if isinstance(error, InvalidArgumentError)
            else EXIT_AUTH
            if isinstance(error, UnauthenticatedError)
            else EXIT_UNAVAILABLE
        )
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    raise typer.Exit(status)


def _run(settings: Settings, json_wanted: bool, junit: Path | None) -> int:
    console = Console(
        file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _WIDE, markup=False
    )
    heading: Level | None = None

    def tell(verdict: Verdict) -> None:
        nonlocal heading
        if verdict.rule.level is not heading:
            heading = verdict.rule.level
            console.print(f"\n{heading.value.capitalize()}", style="bold")
        print_verdict(console, verdict)

    report = asyncio.run(run_suite(settings, None if json_wanted else tell))
    if json_wanted:
        sys.stdout.write(as_json(report) + "\n")
    else:
        print_summary(console, report)
    if junit is not None:
        try:
            junit.write_bytes(as_junit(report))
        except OSError as error:
            raise InvalidArgumentError.of("junit", f"{junit} cannot be written: {error.strerror}") from None
    return 0 if report.conforms else EXIT_BROKEN


def _settings(
    target: Target,
    *,
    reward: str,
    config: str,
    columns: str,
    rows: Path | None,
    timeout: float,
    quick: bool,
    rules: list[str],
    drain_command: str,
    drain_pid: int | None,
) -> Settings:
    wrong: list[FieldViolation] = []
    given: list[Row] = []
    try:
        check_address(target.address)
    except ValueError as error:
        wrong.append(FieldViolation("HOST:PORT", str(error)))
    try:
        if config:
            object_of("config", config, '{"tag": "answer"}')
    except InvalidArgumentError as error:
        wrong.extend(error.violations)
    try:
        if columns and rows is not None:
            wrong.append(
                FieldViolation("columns", "and rows exclude each other; rows have columns of their own")
            )
        elif columns:
            given = [row_of_columns(columns)]
        elif rows is not None:
            given = read_rows(rows)
    except InvalidArgumentError as error:
        wrong.extend(error.violations)
    if drain_command and drain_pid is not None:
        wrong.append(FieldViolation("drain-command", "and drain-pid exclude each other"))
    if wrong:
        raise InvalidArgumentError(wrong)
    return Settings(
        target, reward, config, given, timeout, quick, rules, drain_command=drain_command, drain_pid=drain_pid
    )


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError.of("token-file", f"{path} cannot be read: {error}") from None


if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command()(main)
    app(prog_name="plaudit reward conformance")
