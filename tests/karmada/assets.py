"""A real Karmada for a test, or a failure with the command that builds it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from hack.karmada_assets import found_karmada, karmada_module
from testkit.processes.api_servers import RealPlane
from testkit.processes.karmada import Karmada


def needed_karmada() -> Callable[[RealPlane], Karmada]:
    """Return a function that creates the Karmada of a hub."""
    found = found_karmada(os.environ)
    if found is None:
        pytest.fail("there is no real Karmada to test with; build it: make kube-assets")
    return partial(Karmada, found, karmada_module(os.environ))
