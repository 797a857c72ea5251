"""Generates the scenario of a seed: ``scenario_of(seed)``.

The layout, the operations and the faults are drawn from tables, each from a random stream of its
own. On top of them most scenarios apply a template: operations and faults that need each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from testkit.sim.loop import stream
from testkit.sim.scenario.draw import (
    Table,
    draw_data,
    draw_faults,
    draw_fleeting,
    draw_layout,
    draw_operations,
    draw_size,
    draw_window_s,
    weighted,
)
from testkit.sim.scenario.fault_templates import (
    Template,
    with_fault_template,
    with_restart_template,
    with_surge,
    with_unreliable_image,
)
from testkit.sim.scenario.feature_templates import (
    with_cell_template,
    with_city_order,
    with_city_restarts,
    with_contended_names,
    with_drain_template,
    with_federation_template,
    with_halts,
    with_mislabeled_namespaces,
    with_new_project,
    with_orphans,
    with_quota_contention,
    with_sleep_template,
    with_undo,
)
from testkit.sim.scenario.scenario import Scenario

# After the last operation and fault have begun; the calm begins then.
_TAIL_S = 10.0
# In every n-th world users soon want more instances than their quota allows.
_TIGHT_EVERY, _TIGHT = 6, (1, 2)
# In every n-th world, one with scarce quota, several workloads wait for released quota.
_CONTENDED_EVERY, _CONTENDED = 30, 18
# In every n-th world workloads reference ConfigMaps and Secrets.
_DATA_EVERY, _DATA = 8, 3
# In every n-th world namespaces of projects are created and deleted.
_FLEETING_EVERY, _FLEETING = 12, 1
# Every n-th world applies a restart template.
_RESTARTS_EVERY, _RESTARTS = 9, 4
# In every n-th world a workload is rolled out from city to city.
_CITIES_EVERY, _CITIES = 26, 23
# In every n-th world a workload is rolled out to an image that does not stay healthy.
_UNRELIABLE_EVERY, _UNRELIABLE = 11, 5
# In every n-th world a workload is restarted in one of its cities.
_CITY_RESTARTS_EVERY, _CITY_RESTARTS = 7, 2
# In every n-th world a workload is stopped and started, or its project suspended and resumed.
_HALTED_EVERY, _HALTED = 12, 7
# In every n-th world rollouts use surge.
_SURGE_EVERY, _SURGE = 22, 9
# In every n-th world workloads want the names of each other, or of earlier ones.
_NAMES_EVERY, _NAMES = 19, 5
# In every n-th world users undo changes and restarts.
_UNDONE_EVERY, _UNDONE = 34, 15
# Every n-th world begins with empty disks.
_FRESH_EVERY, _FRESH = 20, 6


def _plain(_random: Random, scenario: Scenario) -> Scenario:
    return scenario


# Groups of templates: the name of the random stream, the function, and the weight in percent. Most
# scenarios apply at most one, which keeps worlds small.
TEMPLATES: Table[tuple[str, Template]] = (
    (("", _plain), 38),
    (("story", with_fault_template), 34),
    (("federation", with_federation_template), 5),
    (("projects", with_new_project), 8),
    (("membership", with_drain_template), 3),
    (("cells", with_cell_template), 5),
    (("orphans", with_orphans), 3),
    (("sleep", with_sleep_template), 4),
)
_ALONE_PERCENT = {"projects": 75, "membership": 75, "orphans": 60, "sleep": 75}
# Percentage of scenarios that apply a second template.
_SECOND_PERCENT = 6


def scenario_of(seed: int) -> Scenario:
    scenario = _templated_scenario(seed)
    if seed % _UNRELIABLE_EVERY == _UNRELIABLE:
        scenario = with_unreliable_image(stream(seed, "workload", "unreliable"), scenario)
    if seed % _CITY_RESTARTS_EVERY == _CITY_RESTARTS:
        return with_city_restarts(stream(seed, "workload", "city-restarts"), scenario)
    return scenario


def _templated_scenario(seed: int) -> Scenario:
    size = draw_size(stream(seed, "layout", "size"))
    layout = draw_layout(stream(seed, "layout"), size)
    if seed % _TIGHT_EVERY == 0:
        layout = replace(layout, instances=_TIGHT[seed // _TIGHT_EVERY % len(_TIGHT)])
    window_s = draw_window_s(stream(seed, "layout", "window"))
    operations = draw_operations(stream(seed, "workload"), layout, size, window_s)
    if seed % _DATA_EVERY == _DATA:
        operations = draw_data(stream(seed, "workload", "data"), layout, operations, window_s)
    if seed % _FLEETING_EVERY == _FLEETING:
        operations += draw_fleeting(stream(seed, "workload", "namespaces"), layout, window_s)
    scenario = Scenario(
        seed=seed,
        layout=layout,
        operations=operations,
        faults=draw_faults(stream(seed, "faults"), layout, size, window_s),
        chaos_s=window_s + _TAIL_S,
        fresh=seed % _FRESH_EVERY == _FRESH,
    )
    if seed % _CONTENDED_EVERY == _CONTENDED:
        return with_quota_contention(stream(seed, "workload", "contenders"), scenario)
    if seed % _CITIES_EVERY == _CITIES:
        return with_city_order(stream(seed, "workload", "cities"), scenario)
    if seed % _RESTARTS_EVERY == _RESTARTS:
        return with_restart_template(stream(seed, "workload", "restarts"), scenario)
    if seed % _SURGE_EVERY == _SURGE:
        return with_surge(stream(seed, "workload", "surge"), scenario)
    if seed % _NAMES_EVERY == _NAMES:
        return with_contended_names(stream(seed, "workload", "names"), scenario)
    if seed % _UNDONE_EVERY == _UNDONE:
        return with_undo(stream(seed, "workload", "undo"), scenario)
    for name, template in _templates_of(seed):
        scenario = _apply_template(scenario, name, template)
    scenario = with_mislabeled_namespaces(stream(seed, "workload", "namespace-labels"), scenario)
    if seed % _HALTED_EVERY == _HALTED:
        return with_halts(stream(seed, "workload", "halts"), scenario)
    return scenario


def _apply_template(scenario: Scenario, name: str, template: Template) -> Scenario:
    """Apply a template. In ``_ALONE_PERCENT`` of cases it replaces the drawn operations."""
    seed = scenario.seed
    alone = stream(seed, "workload", "alone").random() * 100 < _ALONE_PERCENT.get(name, 0)
    extended = template(
        stream(seed, "workload", name), replace(scenario, operations=()) if alone else scenario
    )
    return extended if extended.operations else scenario


def _templates_of(seed: int) -> Iterator[tuple[str, Template]]:
    """Yield the drawn templates in the order of the table, whichever was drawn first: cells must
    join before instances sleep."""
    random = stream(seed, "workload", "tales")
    drawn = [weighted(random, TEMPLATES)]
    if random.random() * 100 < _SECOND_PERCENT:
        drawn.append(weighted(random, TEMPLATES))
    return (template for template, _ in TEMPLATES if template in drawn)
