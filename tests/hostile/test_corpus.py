"""No request of a project user grows the memory of the server by more than 64 MB."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from datum_compute.api.meta.codec import decode
from testkit.hostile.corpus import CORPUS
from testkit.hostile.measure import GROWTH_MAX_MB, measure_cost
from testkit.hostile.request import HostileRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> Iterator[None]:
    """Exclude the objects of earlier tests from garbage collection. Each measurement collects, and
    a process that ran thousands of tests needs a second for it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("hostile", CORPUS, ids=lambda hostile: hostile.name)
async def test_hostile_request_gets_the_expected_response_within_the_memory_limit(
    hostile: HostileRequest,
) -> None:
    cost = await measure_cost(hostile)
    for response in cost.responses:
        assert response.status == hostile.status, response.body[:500]
    if hostile.mentions:
        assert hostile.mentions in decode(cost.responses[-1].body)["message"]
    assert cost.growth_mb <= GROWTH_MAX_MB


def test_names_of_hostile_requests_are_unique() -> None:
    names = [hostile.name for hostile in CORPUS]
    assert len(set(names)) == len(names)
