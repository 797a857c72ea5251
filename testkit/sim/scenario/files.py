"""Scenarios as small JSON files, and lists of known seeds.

A file has one line for each operation and fault, so that a line can be removed by hand. Every class
of ``Operation`` and ``Fault`` can be written. A file with an unknown class or field is refused with
the reason.

A list of known seeds has one seed per line, and what it found:

    # a comment
    417 the projector lost a projection when its deployment came back

The scenario of a seed changes with the tables of ``draw.py``, so it is stored next to the list,
under the name of the seed: ``known_seeds/417.json``, which ``make sim SEED=417 KEEP=<file>``
writes. Without a file the scenario is generated from the seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import msgspec

from testkit.sim.loop import ALWAYS
from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import Operation
from testkit.sim.scenario.scenario import Scenario, WorldLayout

_OPERATIONS = {model.__name__: model for model in get_args(Operation)}
_FAULTS = {model.__name__: model for model in get_args(Fault)}
_FOR_EVER = "for ever"  # JSON has no infinity
_LISTED = ("operations", "faults")


class BadScenario(ValueError):
    """The text is not a scenario; the message contains the reason."""


def scenario_text(scenario: Scenario) -> str:
    plain = {
        field.name: msgspec.to_builtins(getattr(scenario, field.name))
        for field in fields(scenario)
        if field.name not in _LISTED and not _is_usual(scenario, field.name)
    }
    parts = [f"{json.dumps(name)}: {_dump_json(value)}" for name, value in plain.items()]
    for name in _LISTED:
        steps = [f"  {_dump_json(_step_text(step))}" for step in getattr(scenario, name)]
        parts.append(f'"{name}": [' + (("\n" + ",\n".join(steps) + "\n") if steps else "") + "]")
    return "{" + ",\n".join(parts) + "}\n"


def _is_usual(scenario: Scenario, name: str) -> bool:
    """Return True for values that nearly all scenarios have: files omit them."""
    return name == "shuffled_s" and scenario.shuffled_s == ALWAYS


def scenario_from(text: str) -> Scenario:
    try:
        found = json.loads(text)
        known = {**found, "layout": msgspec.convert(found["layout"], WorldLayout)}
        known["operations"] = _steps(found["operations"], _OPERATIONS)
        known["faults"] = _steps(found["faults"], _FAULTS)
        begins_s, ends_s = found.get("shuffled_s", ALWAYS)
        known["shuffled_s"] = (begins_s, math.inf if ends_s == _FOR_EVER else ends_s)
        return Scenario(**known)
    except (KeyError, TypeError, ValueError) as error:
        raise BadScenario(f"not a scenario of this version: {error!r}") from error


def read_scenario(path: Path) -> Scenario:
    return scenario_from(path.read_text())


def _step_text(step: Any) -> list[Any]:
    """Return [class, {field: value}]."""
    return [type(step).__name__, msgspec.to_builtins(step)]


def _steps(listed: Iterable[Any], models: dict[str, Any]) -> tuple[Any, ...]:
    found = []
    for name, values in listed:
        if name not in models:
            raise BadScenario(f"there is no {name}; there are: {', '.join(sorted(models))}")
        known = {key: math.inf if v == _FOR_EVER else v for key, v in values.items()}
        found.append(msgspec.convert(known, models[name]))
    return tuple(found)


def _dump_json(value: Any) -> str:
    return json.dumps(_encode_infinity(value), allow_nan=False)


def _encode_infinity(value: Any) -> Any:
    match value:
        case float() if math.isinf(value):
            return _FOR_EVER
        case dict():
            return {key: _encode_infinity(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_encode_infinity(inner) for inner in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class KnownSeed:
    seed: int
    found: str
    scenario: Scenario


def read_known_seeds(path: Path) -> list[KnownSeed]:
    return [
        _parse_known_seed(path, number, line)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]


def _parse_known_seed(path: Path, number: int, line: str) -> KnownSeed:
    seed, _, found = line.strip().partition(" ")
    if not seed.isdecimal() or not found.strip():
        raise ValueError(f"{path}:{number}: a line is a seed and what it once found, not {line!r}")
    kept = path.with_suffix("") / f"{seed}.json"
    scenario = read_scenario(kept) if kept.exists() else scenario_of(int(seed))
    return KnownSeed(int(seed), found.strip(), scenario)
