"""Rules of roles: what one rule allows, and which permissions a set of rules does not cover.

``*`` matches everything, ``*/name`` that subresource of every resource, and ``*`` at the end of a
path everything below it. A rule for a resource does not include its subresources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from datum_compute.server.access.attributes import Attributes

ALL = "*"
COMPARISONS_MAX = 100_000  # of one request that grants permissions; at most about 60 ms
# The cost of longer steps, in comparisons.
_HASH_COST = 2
_LOOKUP_COST = 4


@dataclass(frozen=True, slots=True)
class Rule:
    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()  # empty means all names
    paths: tuple[str, ...] = ()

    def allows(self, attributes: Attributes) -> bool:
        if attributes.verb not in self.verbs and ALL not in self.verbs:
            return False
        if attributes.path:
            return any(_path_matches(path, attributes.path) for path in self.paths)
        return self._has_resource(attributes) and (not self.names or attributes.name in self.names)

    def allows_some(self, attributes: Attributes) -> bool:
        """Return True if the rule allows this for at least one name."""
        has_verb = attributes.verb in self.verbs or ALL in self.verbs
        return has_verb and self._has_resource(attributes)

    def _has_resource(self, attributes: Attributes) -> bool:
        if attributes.group not in self.groups and ALL not in self.groups:
            return False
        if not attributes.subresource:
            return attributes.resource in self.resources or ALL in self.resources
        return (
            ALL in self.resources
            or f"{attributes.resource}/{attributes.subresource}" in self.resources
            or f"*/{attributes.subresource}" in self.resources
        )


EVERYTHING = (
    Rule(frozenset({ALL}), frozenset({ALL}), frozenset({ALL})),
    Rule(frozenset({ALL}), paths=(ALL,)),
)


def any_allows(rules: Iterable[Rule], attributes: Attributes) -> bool:
    for rule in rules:  # noqa: SIM110 - a generator costs more, and every request calls this
        if rule.allows(attributes):
            return True
    return False


@dataclass(slots=True)
class ComparisonBudget:
    """The number of comparisons that one request may still make."""

    left: int = COMPARISONS_MAX

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _BudgetExceeded


class _BudgetExceeded(Exception):
    pass


def missing_permissions(
    held: Sequence[Rule],
    wanted: Iterable[Rule],
    count_max: int,
    budget: ComparisonBudget | None = None,
) -> list[str]:
    """Describe up to ``count_max`` permissions of ``wanted`` that ``held`` does not cover. The
    list is empty only if all permissions were compared and are covered."""
    budget = budget or ComparisonBudget()
    missing: list[str] = []
    try:
        budget.spend(_HASH_COST * len(held))
        known = dict.fromkeys(held)
        rest = [rule for rule in dict.fromkeys(wanted) if rule not in known]
        if not rest:
            return missing
        index = _HeldIndex(known, rest, budget)
        parts = (part for rule in rest for part in index.find_uncovered(rule))
        for part in islice(parts, count_max):
            missing.append(_describe_permission(part))  # noqa: PERF401 - keep those found before the limit
    except _BudgetExceeded:
        if not missing:
            missing.append("too many permissions to compare; split the role into smaller ones")
    return missing


class _HeldIndex:
    """Held rules by verb and resource, limited to the verbs and resources of ``wanted``.

    ``wanted`` are the rules that a user is about to grant.
    """

    def __init__(
        self, held: Collection[Rule], wanted: Sequence[Rule], budget: ComparisonBudget
    ) -> None:
        self._budget = budget
        self._path_rules = [rule for rule in held if rule.paths]
        self._rules: dict[tuple[str, str], list[Rule]] = {}
        # The names for which a verb on a resource of a group is held. None means all names.
        self._names: dict[tuple[str, str, str], frozenset[str] | None] = {}
        verbs = frozenset({ALL}).union(*(rule.verbs for rule in wanted))
        resources = {
            pattern
            for rule in wanted
            for resource in rule.resources
            for pattern in _covering_resources(resource)
        }
        for rule in held:
            budget.spend(len(rule.verbs) + len(rule.resources))
            shared_verbs, shared_resources = rule.verbs & verbs, rule.resources & resources
            budget.spend(len(shared_verbs) * len(shared_resources))
            for key in product(shared_verbs, shared_resources):
                self._rules.setdefault(key, []).append(rule)

    def find_uncovered(self, wanted: Rule) -> Iterator[Attributes]:
        """Yield the single permissions that are not held. ``*`` is covered only by ``*``."""
        if self._is_included(wanted):
            return
        groups, resources = sorted(wanted.groups), sorted(wanted.resources)
        for verb in sorted(wanted.verbs):
            for group, resource in product(groups, resources):
                plural, _, subresource = resource.partition("/")
                for name in self._uncovered_names(verb, group, resource, wanted.names):
                    yield Attributes(verb, group, plural, subresource, name=name)
            for path in wanted.paths:
                self._budget.spend(1 + sum(len(rule.paths) for rule in self._path_rules))
                part = Attributes(verb, path=path)
                if not any_allows(self._path_rules, part):
                    yield part

    def _is_included(self, wanted: Rule) -> bool:
        """Return True if one held rule alone covers all of ``wanted``. Return False without a
        search if that costs more than to compare the single permissions."""
        if not wanted.verbs:
            return True
        candidates = (
            self._candidates(next(iter(wanted.verbs)), next(iter(wanted.resources)))
            if wanted.resources
            else self._path_rules
        )
        parts = len(wanted.verbs) * (len(wanted.groups) * len(wanted.resources) + len(wanted.paths))
        if len(candidates) > parts:
            return False
        size = len(wanted.verbs) + len(wanted.groups) + len(wanted.resources) + len(wanted.names)
        self._budget.spend(len(candidates) * (size + len(wanted.paths)))
        return any(_includes(rule, wanted) for rule in candidates)

    def _uncovered_names(
        self, verb: str, group: str, resource: str, wanted: frozenset[str]
    ) -> Sequence[str]:
        """Return the names that are not held; an empty name means all names."""
        self._budget.spend(1)
        key = (verb, group, resource)
        if key not in self._names:
            self._names[key] = self._held_names(*key)
        held = self._names[key]
        if held is None:
            return ()
        if not wanted:
            return ("",)
        self._budget.spend(len(wanted))
        return sorted(wanted - held)

    def _held_names(self, verb: str, group: str, resource: str) -> frozenset[str] | None:
        candidates = self._candidates(verb, resource)
        self._budget.spend(_LOOKUP_COST + len(candidates))
        fitting = [rule for rule in candidates if group in rule.groups or ALL in rule.groups]
        if any(not rule.names for rule in fitting):
            return None
        self._budget.spend(sum(len(rule.names) for rule in fitting))
        return frozenset().union(*(rule.names for rule in fitting))

    def _candidates(self, verb: str, resource: str) -> list[Rule]:
        verbs = (verb,) if verb == ALL else (verb, ALL)
        keys = product(verbs, _covering_resources(resource))
        return [rule for key in keys for rule in self._rules.get(key, ())]


def _covering_resources(resource: str) -> tuple[str, ...]:
    """Return the resources of a rule that cover this one."""
    _, _, subresource = resource.partition("/")
    patterns = (resource, f"*/{subresource}", ALL) if subresource else (resource, ALL)
    return tuple(dict.fromkeys(patterns))


def _includes(rule: Rule, wanted: Rule) -> bool:
    """Return True if one rule alone covers another, which is the usual case."""
    return (
        (ALL in rule.verbs or wanted.verbs <= rule.verbs)
        and (ALL in rule.groups or wanted.groups <= rule.groups)
        and (ALL in rule.resources or wanted.resources <= rule.resources)
        and (not rule.names or (bool(wanted.names) and wanted.names <= rule.names))
        and (ALL in rule.paths or set(wanted.paths) <= set(rule.paths))
    )


def _describe_permission(part: Attributes) -> str:
    if part.path:
        return f"{part.verb} {part.path}"
    resource = f"{part.full_resource}.{part.group}" if part.group else part.full_resource
    return f"{part.verb} {resource}" + (f" named {part.name}" if part.name else "")


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith(ALL):
        return path.startswith(pattern[:-1])
    return path == pattern
