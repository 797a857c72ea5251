"""The largest that is accepted can also be carried out, on every plane it goes to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from string import ascii_letters

import pytest

from datum_compute.admission.workload import TEMPLATE_BYTES_MAX
from datum_compute.api.codec import JsonObject, encode
from tests.regressions.platform import Platform, on_platform

NAMES = ["".join(letters) for letters in product(ascii_letters, repeat=3)]
SHORTEST = len(encode({"name": "abc", "value": ""})) + 1


def one_large() -> JsonObject:
    return {"args": ["x" * (TEMPLATE_BYTES_MAX - 500)]}


def many_small() -> JsonObject:
    """Each of them has an entry of its own among the owners of fields: those take the most."""
    count = (TEMPLATE_BYTES_MAX - 500) // SHORTEST
    return {"env": [{"name": name} for name in NAMES[:count]]}


@pytest.mark.parametrize("filling", [one_large, many_small])
def test_the_largest_template_runs_and_is_told_of(filling: Callable[[], JsonObject]) -> None:
    """Seen: accepted, and then its deployment or its status did not fit."""

    async def story(platform: Platform) -> str:
        container = {"name": "app", "image": "web:2", **filling()}
        template = {"spec": {"runtime": {"sandbox": {"containers": [container]}}}}
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.change(template=template)
        await platform.until_ready("web:2")
        return (await platform.available()).status

    assert on_platform(story, boot_s=0.0) == "True"
