from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.surroundings import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(home=tmp_path)
