"""Generates docs/internals/simulator-faults.md: what the simulator can break, and what finds it."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from hack.reference import HEADER, markdown_table
from testkit.sim.mutants.search import read_findings
from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.operations import Operation

_FINDINGS = Path(__file__).resolve().parent.parent / "tests" / "sim" / "mutant_findings"
_PATTERNS = re.compile(r"(F\d+(, )?)*")
_NUMBER = re.compile(r"\d+")
_INTRODUCTION = """\
# Faults of the simulator

The faults that a [scenario](simulator.md) can contain, and the operations of users that act as one.
`at_s` is the virtual time of a fault, `for_s` its duration.

- **F**: the [patterns](simulator.md#faults-and-invariants) that it implements.
- **Broken rules**: the rules that broke in a recorded scenario of a [mutant](simulator.md#mutants)
  that contains the fault. The scenario is shrunken: without the fault the rules hold. A fault
  without rules is in no recorded scenario; it can still break any rule.

"""


def find_faults() -> list[type[Any]]:
    """Return the faults, and the operations that implement a pattern, in the order of patterns."""
    operations = (operation for operation in get_args(Operation) if fault_patterns(operation))
    return sorted(
        (*get_args(Fault), *operations),
        key=lambda fault: (min(fault_patterns(fault), default=0), fault.__name__),
    )


def simulator_files() -> dict[str, str]:
    rules = _broken_rules()
    rows = [
        (
            f"`{fault.__name__}`",
            ", ".join(map(str, sorted(fault_patterns(fault)))),
            _description(fault),
            ", ".join(sorted(rules[fault.__name__], key=lambda rule: int(rule[1:]))) or "-",
        )
        for fault in find_faults()
    ]
    page = markdown_table(("fault", "F", "what happens", "broken rules"), rows)
    return {"simulator-faults.md": HEADER + _INTRODUCTION + page}


def fault_patterns(fault: type[Any]) -> set[int]:
    """Return the numbers of the patterns, which its docstring starts with."""
    found = _PATTERNS.match(_docstring(fault))
    return set(map(int, _NUMBER.findall(found[0]))) if found else set()


def _description(fault: type[Any]) -> str:
    text = _docstring(fault).partition(": ")[2]
    return (text[:1].upper() + text[1:]).replace("``", "`")


def _docstring(fault: type[Any]) -> str:
    return " ".join((inspect.getdoc(fault) or "").split())


def _broken_rules() -> Mapping[str, set[str]]:
    rules: dict[str, set[str]] = defaultdict(set)
    for name, broken in _findings():
        rules[name] |= broken
    return rules


def _findings() -> Iterator[tuple[str, set[str]]]:
    """Yield each step of a recorded scenario, with the rules that the mutant broke."""
    for finding in read_findings(_FINDINGS):
        for step in (*finding.scenario.faults, *finding.scenario.operations):
            yield type(step).__name__, set(finding.invariants)
