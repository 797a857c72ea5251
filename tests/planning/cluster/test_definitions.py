"""Removal of a definition with its objects, and requests to compute its status."""

from __future__ import annotations

import pytest

from datum_compute.api.apiextensions import CLEANUP_FINALIZER
from datum_compute.api.inventory import StoredObject
from datum_compute.api.kinds import CONFIG_MAP, DEFINITION
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.planning.cluster.definitions import RECHECK_S, is_cleaning_up, plan_definition
from datum_compute.planning.plan import Patch, PatchStatus, Plan

OTHER_FINALIZER = "example.com/hold"


def a_definition(*finalizers: str, terminating: bool) -> StoredObject:
    return StoredObject(
        kind=DEFINITION,
        ref=Ref("", "widgets.example.com"),
        uid="uid-widgets",
        version="7",
        terminating=terminating,
        finalizers=finalizers,
        owners=(),
    )


WIDGET = StoredObject(
    kind=CONFIG_MAP,
    ref=Ref("default", "a"),
    uid="uid-a",
    version="1",
    terminating=True,
    finalizers=(),
    owners=(),
)


def test_the_server_computes_the_status_of_a_definition_that_stays() -> None:
    definition = a_definition(CLEANUP_FINALIZER, terminating=False)
    (request,) = plan_definition(HUB, definition, ()).actions
    assert isinstance(request, PatchStatus)
    assert (request.kind, request.version, request.status) == (DEFINITION, "7", {})


def test_a_terminating_definition_waits_for_its_objects() -> None:
    definition = a_definition(CLEANUP_FINALIZER, terminating=True)
    assert plan_definition(HUB, definition, [WIDGET]) == Plan(requeue_after_s=RECHECK_S)


@pytest.mark.parametrize(
    ("others", "left"), [((), None), ((OTHER_FINALIZER,), [OTHER_FINALIZER])], ids=["last", "other"]
)
def test_a_terminating_definition_without_objects_is_released(
    others: tuple[str, ...], left: list[str] | None
) -> None:
    definition = a_definition(CLEANUP_FINALIZER, *others, terminating=True)
    (release,) = plan_definition(HUB, definition, ()).actions
    assert isinstance(release, Patch)
    assert release.patch == {"metadata": {"finalizers": left, "resourceVersion": "7"}}


def test_a_definition_is_released_only_once() -> None:
    definition = a_definition(OTHER_FINALIZER, terminating=True)
    assert plan_definition(HUB, definition, ()) == Plan()


@pytest.mark.parametrize(
    ("finalizers", "terminating", "expected"),
    [
        ((CLEANUP_FINALIZER,), True, True),
        ((CLEANUP_FINALIZER,), False, False),
        ((OTHER_FINALIZER,), True, False),
    ],
)
def test_a_terminating_definition_cleans_up_until_it_is_released(
    finalizers: tuple[str, ...], terminating: bool, expected: bool
) -> None:
    assert is_cleaning_up(a_definition(*finalizers, terminating=terminating)) is expected
