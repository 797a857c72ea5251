"""Settings of the process that limit how long the event loop stops."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from datum_compute.app.process import YOUNG_OBJECTS_MAX, settle_memory


@pytest.fixture
def settled_memory() -> Iterator[None]:
    thresholds = gc.get_threshold()
    settle_memory()
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("settled_memory")
def test_each_garbage_collection_traverses_few_objects_while_many_are_created() -> None:
    traversed = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            traversed.append(sum(len(gc.get_objects(generation=number)) for number in generations))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(30 * YOUNG_OBJECTS_MAX)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 30 * YOUNG_OBJECTS_MAX
    assert len(traversed) >= 20
    assert sorted(traversed)[-2] <= 1.1 * YOUNG_OBJECTS_MAX
    assert max(traversed) <= 25 * YOUNG_OBJECTS_MAX, "one collection of the middle generation"
