"""The form of every text that the command line prints: help, errors, hints and notes.

Texts are collected from the commands and from the syntax tree, so that new ones are checked too. In
a text, ``{}`` stands for a value that is known at run time only.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from datum_compute import cli
from datum_compute.cli.groups import compute
from tests.house_rules import BANNED_WORDS

SOURCE = Path(inspect.getfile(cli)).parent
SUMMARY_MAX, OPTION_MAX, MESSAGE_MAX = 60, 100, 200
# A text starts with a capital letter, a value, a flag, or a name in quotes.
START = re.compile(r"[A-Z{'\"$]|--?[a-z]|stdin\b")
# A title and a command, or a title and the commands in the next lines.
TITLE_AND_COMMAND = re.compile(r"[^:]+:( +\S.*)?")
NOTE_METHODS = frozenset({"note", "print_note"})
UNWANTED = re.compile(r"(?i)\bplease\b|\bsorry\b|\boops\b|!$|[^: ]  ")


@dataclass(frozen=True, slots=True)
class UserText:
    where: str
    kind: str  # message, hint or note
    text: str


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


COMMANDS = dict(commands(compute))


def options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def without_default(text: str) -> str:
    """Remove the default that some help texts end with: ``[default: ...]``."""
    return re.sub(r"\s*\[default: .*\]$", "", text)


def form_problem(text: str, length_max: int, ends: tuple[str, ...] = (".",)) -> str:
    """Return what is wrong with the form of a text; empty if nothing is."""
    words = {word.lower() for word in re.findall(r"[A-Za-z]+", text)}
    if len(text) > length_max:
        return f"has {len(text)} characters, at most {length_max} are allowed"
    if START.match(text) is None:
        return "does not start with a capital letter"
    if not text.endswith(ends):
        return f"does not end with {' or '.join(ends)}"
    if unwanted := UNWANTED.search(text):
        return f"contains {unwanted[0]!r}"
    banned = sorted(words & BANNED_WORDS)
    return f"contains {banned}" if banned else ""


def literal(node: ast.expr | None) -> str:
    """Return a string literal with ``{}`` for its values; empty for other expressions."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(literal(value) or "{}" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (literal(left) or "{}") + (literal(right) or "{}")
        case _:
            return ""


def user_texts() -> Iterator[UserText]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                where = f"{path.relative_to(SOURCE)}:{node.lineno}"
                yield from call_texts(node, where)


def call_texts(call: ast.Call, where: str) -> Iterator[UserText]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    name = call.func.id if isinstance(call.func, ast.Name) else name
    kinds: tuple[str, ...] = ()
    if name.endswith("Error") or name == "BadParameter":
        kinds = ("message", "hint")
    elif name in NOTE_METHODS:
        kinds = ("note",)
    for kind, argument in zip(kinds, call.args, strict=False):
        if text := literal(argument):
            yield UserText(where, kind, text)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_a_command_has_a_sentence_and_an_example(path: str) -> None:
    command = COMMANDS[path]
    help_text = inspect.cleandoc(command.help or "")
    sentence = " ".join(help_text.partition("\n\n")[0].split())
    assert form_problem(sentence, 300) == "", sentence
    assert "Example" in help_text, help_text
    if command.short_help:
        assert form_problem(command.short_help, SUMMARY_MAX) == "", command.short_help


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_an_option_is_a_sentence(path: str) -> None:
    problems = {
        option.opts[-1]: f"{text!r} {problem}"
        for option in options(COMMANDS[path])
        for text in [without_default(option.help or "")]
        if (problem := form_problem(text, OPTION_MAX))
    }
    assert problems == {}


@pytest.mark.parametrize("kind", ["message", "hint", "note"])
def test_texts_for_users_are_sentences(kind: str) -> None:
    texts = [text for text in user_texts() if text.kind == kind]
    assert len(texts) > 20, "the texts were not found"
    problems = [
        f"{found.where}: {line!r} {problem}"
        for found in texts
        for line in found.text.splitlines()[:1]
        if not line.startswith("  ")  # an entry of a list
        if (problem := line_problem(line, kind))
    ]
    assert problems == []


def line_problem(line: str, kind: str) -> str:
    if kind != "message" and TITLE_AND_COMMAND.fullmatch(line):
        line += "."
    return form_problem(line, MESSAGE_MAX, (".", "?", "}"))


def test_form_problems_are_found() -> None:
    assert form_problem("The file is missing.", 80) == ""
    assert form_problem("the file is missing.", 80) == "does not start with a capital letter"
    assert form_problem("The file is missing", 80) == "does not end with ."
    assert form_problem("Please pass a file.", 80) == "contains 'Please'"
    assert form_problem("The server told us.", 80) == "contains ['told']"  # quoted
    assert form_problem("The file is missing.", 10) == "has 20 characters, at most 10 are allowed"
