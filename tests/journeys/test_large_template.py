"""The largest accepted template fits into the objects of every plane."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from string import ascii_letters
from typing import Any

import pytest

from datum_compute.admission.rules.workload import TEMPLATE_BYTES_MAX
from datum_compute.api.meta.codec import JsonObject, encode
from tests.journeys.platform import Platform, on_platform

NAMES = ["".join(letters) for letters in product(ascii_letters, repeat=3)]
SHORTEST = len(encode({"name": "abc", "value": ""})) + 1


def one_large() -> list[JsonObject]:
    return [container("app", args=["x" * (TEMPLATE_BYTES_MAX - 500)])]


def many_small() -> list[JsonObject]:
    """Return containers with many small fields: each has an own managedFields entry."""
    count = (TEMPLATE_BYTES_MAX - 2500) // SHORTEST
    variables = [{"name": name} for name in NAMES[:count]]
    return [
        container(f"app{first}", env=variables[first : first + 1000])
        for first in range(0, count, 1000)
    ]


def container(name: str, **fields: Any) -> JsonObject:
    return {"name": name, "image": "web:2", **fields}


@pytest.mark.parametrize("filling", [one_large, many_small])
def test_the_largest_template_runs_and_reports_its_status(
    filling: Callable[[], list[JsonObject]],
) -> None:
    """Regression: it was accepted, but its deployment or its status was too large to be stored."""

    async def story(platform: Platform) -> str:
        template = {"spec": {"runtime": {"sandbox": {"containers": filling()}}}}
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.change(template=template)
        await platform.until_ready("web:2")
        return (await platform.available()).status

    assert on_platform(story, boot_s=0.0) == "True"
