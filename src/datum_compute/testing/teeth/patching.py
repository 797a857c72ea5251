"""Replaces functions of the product, in memory and for a while.

Rules it keeps:
- What is replaced must be there: a bug in a function that has moved fails loudly, here.
- A function is replaced under every name by which a module of the product knows it, so that it
  does not matter who imports it from where.
- Everything is put back, also after a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.controllers import registry
from datum_compute.runtime.controller import Controller

# Gets the original, gives what stands in its place.
Make = Callable[[Any], Any]

_PACKAGE = "datum_compute."
_TESTING = "datum_compute.testing."


@contextmanager
def function_replaced(original: Callable[..., Any], make: Make) -> Iterator[None]:
    """For functions of modules."""
    planted = make(original)
    places = [
        (module, name)
        for module in _product_modules()
        for name, value in list(vars(module).items())
        if value is original
    ]
    assert places, f"no module of the product knows {original!r}"
    for module, name in places:
        setattr(module, name, planted)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)


@contextmanager
def attribute_replaced(owner: Any, name: str, make: Make) -> Iterator[None]:
    """For methods of classes, constants of modules and fields of (frozen) values."""
    original = vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)
    _assign(owner, name, make(original))
    try:
        yield
    finally:
        _assign(owner, name, original)


def controller_named(name: str) -> Controller[Any]:
    groups = (
        registry.MANAGEMENT,
        registry.HUB,
        registry.CELL,
        registry.NEIGHBOURS,
        registry.FOLLOW_PROJECTS,
        registry.FOLLOW_HOMES,
    )
    found = [c for group in groups for c in group if c.name == name]
    assert len(found) == 1, f"there is no controller {name}"
    return found[0]


def _assign(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)  # a controller is frozen


def _product_modules() -> list[Any]:
    names = sorted(n for n in sys.modules if n.startswith(_PACKAGE) and not n.startswith(_TESTING))
    return [sys.modules[name] for name in names]
