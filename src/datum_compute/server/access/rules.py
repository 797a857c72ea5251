"""One rule of a role, and whether rules that somebody holds cover another.

A star stands for everything, ``*/name`` for that subresource of every resource, and a star at the
end of a path for everything below it. A rule for a resource says nothing of its subresources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from datum_compute.server.access.attributes import Attributes

ALL = "*"
PARTS_MAX = 10_000  # single permissions one rule may stand for before it counts as too wide


@dataclass(frozen=True, slots=True)
class Rule:
    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()  # empty: every name
    paths: tuple[str, ...] = ()

    def allows(self, wanted: Attributes) -> bool:
        if wanted.verb not in self.verbs and ALL not in self.verbs:
            return False
        if wanted.path:
            return any(_path_matches(path, wanted.path) for path in self.paths)
        return self._has_resource(wanted) and (not self.names or wanted.name in self.names)

    def allows_some(self, wanted: Attributes) -> bool:
        """Whether it allows that for objects of one name or another."""
        has_verb = wanted.verb in self.verbs or ALL in self.verbs
        return has_verb and self._has_resource(wanted)

    def _has_resource(self, wanted: Attributes) -> bool:
        if wanted.group not in self.groups and ALL not in self.groups:
            return False
        if not wanted.subresource:
            return wanted.resource in self.resources or ALL in self.resources
        return (
            ALL in self.resources
            or f"{wanted.resource}/{wanted.subresource}" in self.resources
            or f"*/{wanted.subresource}" in self.resources
        )


EVERYTHING = (
    Rule(frozenset({ALL}), frozenset({ALL}), frozenset({ALL})),
    Rule(frozenset({ALL}), paths=(ALL,)),
)


def allowed(rules: Iterable[Rule], wanted: Attributes) -> bool:
    for rule in rules:  # noqa: SIM110 - a generator costs more, and every request asks
        if rule.allows(wanted):
            return True
    return False


def uncovered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[str]:
    """What ``wanted`` would allow and ``held`` does not, in words; empty if there is nothing."""
    return [words for rule in wanted for words in _uncovered(held, rule)]


def _uncovered(held: Sequence[Rule], wanted: Rule) -> Iterator[str]:
    if any(_includes(rule, wanted) for rule in held):
        return
    count = len(wanted.verbs) * (
        len(wanted.groups) * len(wanted.resources) * max(1, len(wanted.names)) + len(wanted.paths)
    )
    if count > PARTS_MAX:
        yield f"a rule that stands for {count} permissions, too many to compare: split it"
        return
    for part in _parts(wanted):
        if not allowed(held, part):
            yield _words(part)


def _includes(rule: Rule, wanted: Rule) -> bool:
    """Whether one rule alone covers another; the quick answer for the usual case."""
    return (
        (ALL in rule.verbs or wanted.verbs <= rule.verbs)
        and (ALL in rule.groups or wanted.groups <= rule.groups)
        and (ALL in rule.resources or wanted.resources <= rule.resources)
        and (not rule.names or (bool(wanted.names) and wanted.names <= rule.names))
        and (ALL in rule.paths or set(wanted.paths) <= set(rule.paths))
    )


def _parts(rule: Rule) -> Iterator[Attributes]:
    """Single permissions; a star stays a star, which only a star can cover."""
    names = sorted(rule.names) or [""]
    for verb in sorted(rule.verbs):
        for group, resource, name in product(sorted(rule.groups), sorted(rule.resources), names):
            plural, _, subresource = resource.partition("/")
            yield Attributes(verb, group, plural, subresource, name=name)
        for path in rule.paths:
            yield Attributes(verb, path=path)


def _words(part: Attributes) -> str:
    if part.path:
        return f"{part.verb} {part.path}"
    resource = f"{part.full_resource}.{part.group}" if part.group else part.full_resource
    return f"{part.verb} {resource}" + (f" named {part.name}" if part.name else "")


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith(ALL):
        return path.startswith(pattern[:-1])
    return path == pattern
