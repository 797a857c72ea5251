"""``instance-types``: the sizes of instances."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner

pytestmark = pytest.mark.usefixtures("local_platform")


def test_instance_types_are_sorted_by_size(cli: CliRunner) -> None:
    assert cli.run("instance-types") == 0
    assert cli.out.splitlines()[:3] == [
        "NAME            CPU    MEMORY   PHASE    REPLACEMENT",
        "d1-standard-1   500m   1Gi      Active   -",
        "d1-standard-2   1      2Gi      Active   -",
    ]
