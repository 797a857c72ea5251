"""``cell``: the sources of a join token."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click
import pytest

from datum_compute.cli.commands.cell import cell, read_token
from datum_compute.cli.environment import CliEnvironment
from tests.cli.runner import CliRunner

HUB = "https://hub.example:7443"
TOKEN = "join-1.secret"


def around(home: Path, typed: str = "", **environ: str) -> CliEnvironment:
    cli = CliRunner(home, environ=environ)
    return cli.environment(io.StringIO(typed), io.StringIO(), io.StringIO())


def test_a_token_comes_from_a_file_from_stdin_or_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    for given in (
        read_token(around(tmp_path), str(file), hub=HUB, hub_ca=None),
        read_token(around(tmp_path, TOKEN), "-", hub=HUB, hub_ca=None),
        read_token(around(tmp_path, DATUM_JOIN_TOKEN=TOKEN), None, hub=HUB, hub_ca=None),
    ):
        assert (given.token, given.hub, given.authority) == (TOKEN, HUB, None)
        assert TOKEN not in repr(given)


def test_the_token_document_contains_the_address_of_the_hub(tmp_path: Path) -> None:
    document = json.dumps({"token": TOKEN, "hub": HUB, "authority": "PEM", "expires": "x"})
    given = read_token(around(tmp_path, document), "-", hub="", hub_ca=None)
    assert (given.token, given.hub, given.authority) == (TOKEN, HUB, b"PEM")
    other = read_token(around(tmp_path, document), "-", hub="https://other.example", hub_ca=None)
    assert other.hub == "https://other.example"


def test_no_flag_takes_a_token() -> None:
    """Others could read it from the list of processes."""
    join = cell.commands["join"]
    options = [o for p in join.params if isinstance(p, click.Option) for o in p.opts]
    assert "--token-file" in options
    assert "--token" not in options


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        ((), {}, "the join token is missing"),
        (("--hub", HUB), {"DATUM_JOIN_TOKEN": " "}, "contains no join token"),
        ((), {"DATUM_JOIN_TOKEN": TOKEN}, "address of the hub is missing"),
        (("--hub", "http://hub.example"), {"DATUM_JOIN_TOKEN": TOKEN}, "address of the hub"),
        (("--token-file", "/nowhere/token", "--hub", HUB), {}, "cannot be read"),
        (("--token-file", "-", "--hub", HUB), {}, "contains no join token"),
    ],
)
def test_missing_arguments_are_reported_before_a_write(
    tmp_path: Path, arguments: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    cli, state = CliRunner(tmp_path, environ=environ), tmp_path / "state"
    flags = ("--name", "dfw", "--city", "DFW", "--state-dir", str(state))
    assert cli.run("cell", "join", *flags, *arguments) in (1, 2)
    assert message in cli.err
    assert TOKEN not in cli.err
    assert not state.exists()
