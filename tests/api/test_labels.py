"""The list of finalizers of the platform."""

from __future__ import annotations

from datum_compute.api import labels


def test_the_list_of_finalizers_is_complete() -> None:
    constants = {value for name, value in vars(labels).items() if name.endswith("_FINALIZER")}
    assert constants == labels.PLATFORM_FINALIZERS
