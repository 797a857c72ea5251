"""The cost of comparing the rules of a new role with the rules of its author."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.rbac_rules import (
    COMPARISONS_MAX,
    ComparisonBudget,
    Rule,
    any_allows,
    missing_permissions,
)

SHOWN = 6


def some(prefix: str, count: int = 10) -> frozenset[str]:
    return frozenset(f"{prefix}{number}" for number in range(count))


def count_comparisons(held: list[Rule], wanted: list[Rule]) -> tuple[list[str], int]:
    budget = ComparisonBudget()
    missing = missing_permissions(held, wanted, SHOWN, budget)
    return missing, COMPARISONS_MAX - budget.left


def test_the_search_stops_at_the_number_of_permissions_that_is_shown() -> None:
    wanted = [Rule(some(f"v{number}-"), some("g"), some("r"), some("n")) for number in range(100)]
    missing, comparisons = count_comparisons([], wanted)
    assert len(missing) == SHOWN
    assert comparisons < 100


def test_names_are_not_multiplied_with_verbs_and_resources() -> None:
    names = some("n", 1000)
    held = [Rule(frozenset({verb}), some("g"), some("r")) for verb in some("v")]
    missing, comparisons = count_comparisons(held, [Rule(some("v"), some("g"), some("r"), names)])
    assert missing == []
    assert comparisons < 10_000


def test_held_rules_of_other_verbs_and_resources_cost_one_comparison_each() -> None:
    held = [
        Rule(frozenset({f"v{number}"}), frozenset({""}), frozenset({f"r{number}"}))
        for number in range(2000)
    ]
    wanted = [
        Rule(frozenset({f"v{number}"}), frozenset({""}), frozenset({f"r{number}"}), some("n"))
        for number in range(2000)
    ]
    missing, comparisons = count_comparisons(held, wanted)
    assert missing == []
    assert comparisons < 20 * 2000


def test_many_rules_for_names_of_one_resource_are_read_once() -> None:
    one = (frozenset({"get"}), frozenset({""}), frozenset({"secrets"}))
    held = [Rule(*one, frozenset({f"n{number}"})) for number in range(2000)]
    wanted = [Rule(*one, frozenset({f"n{n}", f"n{n + 1}"})) for n in range(1000)]
    missing, comparisons = count_comparisons(held, wanted)
    assert missing == []
    assert comparisons < 10 * 2000


def test_one_budget_holds_for_all_rules_of_a_request() -> None:
    halves = [Rule(frozenset({verb}), some("g", 100), some("r", 100)) for verb in ("a", "b")]
    wanted = [
        Rule(frozenset({"a", "b"}), some("g", 100), some("r", 100), frozenset({str(number)}))
        for number in range(500)
    ]
    missing, comparisons = count_comparisons(halves, wanted)
    assert missing == ["too many permissions to compare; split the role into smaller ones"]
    assert comparisons < COMPARISONS_MAX + 1_000


def test_rules_equal_to_held_rules_are_not_split_into_permissions() -> None:
    held = [Rule(some(f"v{number}-", 30), some("g", 30), some("r", 30)) for number in range(100)]
    assert count_comparisons(held, held) == ([], 2 * len(held))


STAR_OR = st.sampled_from(["*", "a", "b"])
RESOURCES = st.sampled_from(["*", "a", "b", "a/s", "*/s", "b/s"])
PATHS = st.sampled_from(["*", "/a", "/a/*", "/a/b"])
RULES = st.lists(
    st.builds(
        Rule,
        st.frozensets(STAR_OR, min_size=1, max_size=2),
        st.frozensets(STAR_OR, max_size=2),
        st.frozensets(RESOURCES, max_size=3),
        st.frozensets(st.sampled_from(["x", "y"]), max_size=2),
        st.lists(PATHS, max_size=2, unique=True).map(tuple),
    ),
    max_size=4,
)


@given(RULES, RULES)
def test_a_rule_is_covered_if_each_of_its_permissions_is(
    held: list[Rule], wanted: list[Rule]
) -> None:
    parts = [part for rule in wanted for part in _single_permissions(rule)]
    expected = all(any_allows(held, part) for part in parts)
    assert (missing_permissions(held, wanted, SHOWN) == []) is expected


def _single_permissions(rule: Rule) -> list[Attributes]:
    found = [Attributes(verb, path=path) for verb in rule.verbs for path in rule.paths]
    names = rule.names or {""}
    for verb, group, resource, name in product(rule.verbs, rule.groups, rule.resources, names):
        plural, _, subresource = resource.partition("/")
        found.append(Attributes(verb, group, plural, subresource, name=name))
    return found
