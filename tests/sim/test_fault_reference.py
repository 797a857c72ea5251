"""docs/internals/simulator.md names every fault beside its pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from datum_compute.cli.local.chaos import chaos
from hack.simulator_reference import fault_patterns, find_faults
from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.operations import Operation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "simulator.md"
_ROW = re.compile(r"^\| ([\d, ]+) \| [^|]* \| ([^|]*) \|$", re.MULTILINE)
_CLASS = re.compile(r"`([A-Z][A-Za-z]+)`")


def documented_faults() -> Mapping[int, set[str]]:
    """Return the classes that the table names for each pattern."""
    table = PAGE.read_text().partition("| F | pattern |")[2].partition("\n\n")[0]
    rows = [(numbers.split(", "), {*_CLASS.findall(text)}) for numbers, text in _ROW.findall(table)]
    return {int(number): classes for numbers, classes in rows for number in numbers}


def test_the_table_names_only_faults_and_operations() -> None:
    known = {step.__name__ for step in (*get_args(Fault), *get_args(Operation))}
    assert set().union(*documented_faults().values()) <= known


@pytest.mark.parametrize("fault", find_faults(), ids=lambda fault: fault.__name__)
def test_the_table_names_each_fault_beside_its_patterns(fault: type[Any]) -> None:
    patterns = fault_patterns(fault)
    assert patterns, f"the docstring of {fault.__name__} begins with no number of a pattern"
    rows = documented_faults()
    assert [number for number in patterns if fault.__name__ not in rows[number]] == []


def test_the_page_names_every_fault_of_local_chaos() -> None:
    faults = chaos.commands.keys() - {"heal", "status"}
    assert {
        name for name in faults if f"`local chaos {name} TARGET`" not in PAGE.read_text()
    } == set()
