"""Features that can be switched off: ``--feature-gates Name=false``.

A feature is a group of controllers (``controllers/registry.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.controllers.context import Context
from datum_compute.controllers.registry import FEATURES
from datum_compute.runtime.controller import Controller

FeatureGates = Mapping[str, bool]


def parse_gates(text: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in FEATURES:
            raise ValueError(f"{name!r} is not a feature; features are {', '.join(FEATURES)}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is neither {name}=true nor {name}=false")
        found[name] = value.lower() == "true"
    return found


def enabled_controllers(
    controllers: tuple[Controller[Context], ...], gates: FeatureGates
) -> tuple[Controller[Context], ...]:
    """Return the controllers that no gate switches off."""
    off = [c for name, group in FEATURES.items() if not gates.get(name, True) for c in group]
    return tuple(c for c in controllers if c not in off)
