"""Real API servers for a test, or a failure with the command that builds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hack.kube_assets import found_assets


def needed_assets() -> Path:
    found = found_assets(os.environ)
    if found is None:
        pytest.fail("there are no real API servers to test with; build them: make kube-assets")
    return found
