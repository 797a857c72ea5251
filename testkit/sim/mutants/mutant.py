"""A mutant, and the functions that replace parts of the product.

- The target must exist: a mutant of a function that has moved fails here.
- The replacement must accept the arguments of the original.
- A function is replaced in every module of the product that imports it.
- The original is restored when the context ends, also after an exception.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import isfunction, signature
from typing import Any

from datum_compute.controllers import registry
from datum_compute.runtime.controller import Controller

# Receives the original and returns its replacement.
Make = Callable[[Any], Any]

_PACKAGE = "datum_compute."


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect that the simulator must find.

    ``imitates`` names the class of defects, or the incident, that it stands for. ``triggers`` names
    operations, faults or properties of a scenario ("2 managers", "scale-down", "tight quota") that
    make the defect visible; the search tries such seeds first. ``violates`` restricts the
    invariants that count as finding it; empty means any.
    """

    name: str
    imitates: str
    apply: Callable[[], AbstractContextManager[None]]
    triggers: tuple[str, ...] = ()
    violates: tuple[str, ...] = ()

    def is_found_by(self, invariant: str) -> bool:
        return not self.violates or invariant in self.violates


@contextmanager
def function_replaced(original: Callable[..., Any], make: Make) -> Iterator[None]:
    """Replace a function of a module."""
    replacement = make(original)
    _check_parameters(original, replacement)
    places = [
        (module, name)
        for module in _product_modules()
        for name, value in list(vars(module).items())
        if value is original
    ]
    assert places, f"no module of the product contains {original!r}"
    for module, name in places:
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)


@contextmanager
def attribute_replaced(owner: Any, name: str, make: Make) -> Iterator[None]:
    """Replace a method of a class, a constant of a module or a field of a frozen value."""
    original = vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)
    replacement = make(original)
    _check_parameters(original, replacement)
    _assign(owner, name, replacement)
    try:
        yield
    finally:
        _assign(owner, name, original)


def _check_parameters(original: Any, replacement: Any) -> None:
    """Fail if the replacement does not accept the arguments of a function that it replaces."""
    if not isfunction(original) or not callable(replacement):
        return
    parameters = signature(original).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    try:
        signature(replacement).bind(*positional, **named)
    except TypeError as misfit:
        raise AssertionError(f"{replacement} does not fit {original}: {misfit}") from misfit


def controller_named(name: str) -> Controller[Any]:
    groups = (
        registry.MANAGEMENT,
        registry.HUB,
        registry.CELL,
        registry.CLUSTER,
        registry.PROJECT_MEMBERSHIP,
        registry.HUB_NAMESPACE_MEMBERSHIP,
        registry.CELL_NAMESPACE_MEMBERSHIP,
        registry.CELL_MEMBERS,
    )
    found = [c for group in groups for c in group if c.name == name]
    assert len(found) == 1, f"there is no controller {name}"
    return found[0]


def _assign(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)  # controllers are frozen


def _product_modules() -> list[Any]:
    names = sorted(name for name in sys.modules if name.startswith(_PACKAGE))
    return [sys.modules[name] for name in names]
