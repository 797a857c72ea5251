"""Every reason has advice: who has to act, what the platform waits for, and one command."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

import datum_compute
from datum_compute.api.conditions import Reason
from datum_compute.cli.groups import VERBS
from datum_compute.planning.explain.advice import ADVICE, COMMAND_WORDS, FOREIGN, advice_on
from datum_compute.planning.reasons import RANK

SOURCE = Path(datum_compute.__file__).parent


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_advice(reason: Reason) -> None:
    advice = ADVICE[reason]
    assert advice.waiting_for
    words = {name for _, name, _, _ in string.Formatter().parse(advice.command) if name}
    assert words <= set(COMMAND_WORDS)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_command_is_one_that_exists(reason: Reason) -> None:
    program, *rest = ADVICE[reason].command.split()
    if program == "datumctl":
        assert rest[0] == "compute"
        assert rest[1] in {verb.name for verb in VERBS}
    else:
        assert program == "kubectl"
        assert rest[0] in ("get", "describe", "edit")


def test_an_unknown_reason_gets_general_advice() -> None:
    assert advice_on("QuantumFoam") is FOREIGN


def test_every_ranked_reason_exists() -> None:
    assert set(RANK) <= set(Reason)


# Conditions of Karmada's kinds, networks, quota, projects and services use the reasons of those
# APIs.
OTHER_APIS = {
    *("planning/karmada", "planning/network", "planning/platform"),
    *("planning/federation/cells.py", "planning/quota/buckets.py"),
}


def test_planners_and_controllers_use_only_reasons_of_the_table() -> None:
    spelled_out = []
    for package in ("planning", "controllers", "drivers"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            if name.startswith(tuple(OTHER_APIS)):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Name(id="ConditionValue"), args=[_, ast.Constant(), *_]):
                        spelled_out.append(f"{name}:{node.lineno}")
    assert spelled_out == []


@pytest.mark.parametrize("reason", ["CellUnreachable", "CellDrained", "NoMatchingLocation"])
def test_problems_of_a_city_recommend_the_cities_command(reason: str) -> None:
    assert advice_on(reason).command == "datumctl compute cities"
