"""JSON output equals its documentation, and the parser accepts all printed commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from datum_compute.cli.errors import ERRORS
from datum_compute.cli.groups import VERBS, compute
from datum_compute.cli.render.documents import (
    DOCUMENTS,
    LIST_SUMMARIES,
    LISTS,
    ErrorDocument,
    ErrorFields,
    OutputDocument,
)
from datum_compute.cli.render.events import EVENTS
from datum_compute.planning.explain.advice import ADVICE, FOREIGN
from hack.output_reference import describe_fields
from tests.cli.golden import READS, golden_runner
from tests.cli.runner import CliRunner, advised, check_advice
from tests.cli.world import World, healthy

COMMON = ("schema", "event", "at")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


# Lists and documents that the golden world does not contain.
NOT_GOLDEN = frozenset(
    {
        *("cell list", "diff", "events", "instances top", "rollout history"),
        *("rollout show", "cell token", "local status", "logs"),
    }
)


@pytest.mark.parametrize("command", sorted(LISTS.keys() - NOT_GOLDEN))
def test_every_list_has_the_documented_fields(home: Path, command: str) -> None:
    cli = golden_runner(home)
    cli.run(*command.split(), "-o", "json")
    items = json.loads(cli.out)["items"]
    assert items
    for item in items:
        assert list(item) == list(LISTS[command].__struct_encode_fields__)


@pytest.mark.parametrize("command", sorted(DOCUMENTS.keys() - NOT_GOLDEN))
def test_every_document_has_the_documented_fields(home: Path, command: str) -> None:
    cli = golden_runner(home)
    named = {"status": "web", "workloads describe": "web", "explain": "web", "open": "web"}
    name = "api-default-ams-0" if command == "instances describe" else named.get(command, "")
    assert cli.run(*command.split(), *([name] if name else []), "-o", "json") == 0, cli.err
    assert list(json.loads(cli.out)) == list(DOCUMENTS[command].__struct_encode_fields__)


def has_fields_of(event: dict[str, Any], struct: type[OutputDocument]) -> bool:
    """Return whether a printed event has the required fields of a Struct, and no others."""
    fields = msgspec.structs.fields(struct)
    required = {field.encode_name for field in fields if field.required}
    return {*COMMON, *required} <= set(event) <= {*COMMON, *struct.__struct_encode_fields__}


def test_every_event_has_the_documented_fields(home: Path) -> None:
    world = World(player=healthy)
    cli = CliRunner(home=home, open_transport=world.open)
    seen: dict[str, Any] = {}
    for words in (("deploy", "web", "--image=a:1", "--city=DFW"), ("restart", "web")):
        assert cli.run(*words, "-o", "json", "-y" if words[0] == "deploy" else "--wait") == 0
        seen |= {json.loads(line)["event"]: json.loads(line) for line in cli.out.splitlines()}
    for name, event in seen.items():
        assert any(
            has_fields_of(event, struct)
            for struct, event_name in EVENTS.items()
            if event_name == name
        ), event
    assert {"plan", "applied", "row", "done"} <= set(seen)


def test_every_documented_field_has_a_meaning() -> None:
    printed: list[type[OutputDocument]] = [ErrorDocument, *EVENTS]
    for documents in (LISTS, LIST_SUMMARIES, DOCUMENTS):
        printed += documents.values()
    for document in printed:
        for field, (_, meaning) in describe_fields(document).items():
            assert meaning, f"{field} of {document.__name__}"
    for event in EVENTS:
        assert event.__doc__, event.__name__


def test_exit_codes_are_the_published_ones() -> None:
    codes = [error.exit_code for error in ERRORS]
    assert sorted(codes) == [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 20, 21, 130]


def test_a_json_error_has_the_documented_fields(tmp_path: Path) -> None:
    cli = golden_runner(tmp_path)
    assert cli.run("status", "no-such-workload", "-o", "json") == 3
    printed = json.loads(cli.err)
    assert list(printed) == list(ErrorDocument.__struct_encode_fields__)
    assert list(printed["error"]) == list(ErrorFields.__struct_encode_fields__)


# --- help


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from walk(inner, (*path, name))


def commands() -> dict[str, click.Command]:
    context = click.Context(compute)
    found: dict[str, click.Command] = {}
    for verb in VERBS:
        command = compute.get_command(context, verb.name)
        assert command is not None
        found |= dict(walk(command, (verb.name,)))
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_examples_that_the_parser_accepts(name: str) -> None:
    text = commands()[name].help or ""
    examples = re.findall(r"^\s+(datumctl compute .*)$", text, re.MULTILINE)
    assert examples, f"{name} has no example in its help"
    words = {*name.split()} - {"list"}
    assert any(words & {*line.split()} for line in examples)
    for line in examples:
        check_advice(line.partition(" > ")[0], "datumctl compute")


def test_every_printed_command_is_accepted_by_the_parser() -> None:
    words = {"workload": "web", "namespace": "default", "resource": "workload", "name": "web"}
    ours = 0
    for advice in (*ADVICE.values(), FOREIGN):
        line = advice.command.format(**words)
        check_advice(line, "datumctl compute")
        ours += len(advised(line, "datumctl compute"))
    assert ours > 10


@pytest.mark.parametrize("name", sorted(READS))
def test_read_commands_accept_every_format(home: Path, name: str) -> None:
    cli = golden_runner(home)
    for form in ("table", "wide", "json", "yaml", "name", "csv", "jsonpath={.name}"):
        assert cli.run(*READS[name], "-o", form) in (0, 20), (form, cli.err)
    assert cli.run(*READS[name], "-o", "xml") == 2
