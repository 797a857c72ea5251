"""Removal of a namespace with its contents, and its default objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.core import (
    ROOT_CA_CONFIG_MAP,
    ConfigMap,
    Namespace,
    NamespaceStatus,
    ServiceAccount,
)
from datum_compute.api.inventory import StoredObject
from datum_compute.api.kinds import CLAIM, CONFIG_MAP, INSTANCE, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import HUB
from datum_compute.planning.cluster.namespaces import (
    CA_KEY,
    RECHECK_S,
    FinalizeNamespace,
    namespace_conditions,
    plan_default_objects,
    plan_namespace_removal,
    select_contents_to_delete,
)
from datum_compute.planning.plan import Action, Create, Patch, PatchStatus, Plan
from testkit.builders import NOW

LATER = "2026-01-01T01:00:00Z"


def stored(
    kind: KindInfo[Any], name: str, *, terminating: bool = False, finalizers: tuple[str, ...] = ()
) -> StoredObject:
    return StoredObject(
        kind=kind,
        ref=Ref("team", name),
        uid=f"uid-{name}",
        version="1",
        terminating=terminating,
        finalizers=finalizers,
        owners=(),
    )


def terminating_namespace(*, reported: list[StoredObject] | None = None) -> Namespace:
    conditions = namespace_conditions((), reported, NOW) if reported is not None else []
    metadata = ObjectMeta(name="team", deletion_timestamp=NOW, resource_version="7")
    return Namespace(metadata=metadata, status=NamespaceStatus(conditions=conditions))


MACHINE = stored(INSTANCE, "web-0", finalizers=("a", "b"))
CLAIM_OF_MACHINE = stored(CLAIM, "web-0")


def test_claims_are_deleted_only_when_nothing_else_remains() -> None:
    stopping = stored(INSTANCE, "web-1", terminating=True)
    assert select_contents_to_delete([MACHINE, CLAIM_OF_MACHINE]) == [MACHINE]
    assert select_contents_to_delete([stopping, CLAIM_OF_MACHINE]) == []
    assert select_contents_to_delete([CLAIM_OF_MACHINE]) == [CLAIM_OF_MACHINE]
    assert select_contents_to_delete([]) == []


def test_an_empty_namespace_is_finalized() -> None:
    assert plan_namespace_removal(HUB, terminating_namespace(), [], NOW) == FinalizeNamespace()


def test_a_namespace_reports_what_remains() -> None:
    plan = plan_namespace_removal(HUB, terminating_namespace(), [MACHINE, CLAIM_OF_MACHINE], NOW)
    assert isinstance(plan, Plan)
    assert plan.requeue_after_s == RECHECK_S
    (report,) = plan.actions
    assert isinstance(report, PatchStatus)
    assert (report.kind, report.ref, report.version) == (NAMESPACE, Ref("", "team"), "7")
    conditions = {c["type"]: (c["status"], c["message"]) for c in report.status["conditions"]}
    assert conditions == {
        "NamespaceContentRemaining": (
            "True",
            (
                "Some resources are remaining: instances.compute.datumapis.com has 1 resource "
                "instances, resourceclaims.quota.miloapis.com has 1 resource instances"
            ),
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            (
                "Some content in the namespace has finalizers remaining: "
                "a in 1 resource instances, b in 1 resource instances"
            ),
        ),
    }


def test_unchanged_contents_are_not_reported_again() -> None:
    namespace = terminating_namespace(reported=[MACHINE, CLAIM_OF_MACHINE])
    plan = plan_namespace_removal(HUB, namespace, [CLAIM_OF_MACHINE, MACHINE], LATER)
    assert plan == Plan(requeue_after_s=RECHECK_S)


def test_a_condition_keeps_its_transition_time_while_its_status_is_unchanged() -> None:
    before = namespace_conditions((), [MACHINE], NOW)
    content, finalizers = namespace_conditions(before, [CLAIM_OF_MACHINE], LATER)
    assert (content.status, content.last_transition_time) == ("True", NOW)
    assert (finalizers.status, finalizers.last_transition_time) == ("False", LATER)


def planned_defaults(**observed: Any) -> tuple[Action, ...]:
    given = {"has_account": True, "ca_certificates": "PEM", "trusted_certificates": "PEM"}
    return plan_default_objects(HUB, "team", **{**given, **observed}).actions


def test_complete_default_objects_need_no_action() -> None:
    assert planned_defaults() == ()


def test_missing_default_objects_are_created() -> None:
    account, config_map = planned_defaults(has_account=False, ca_certificates=None)
    assert isinstance(account, Create)
    assert isinstance(config_map, Create)
    assert (account.kind, config_map.kind) == (SERVICE_ACCOUNT, CONFIG_MAP)
    assert account.object == ServiceAccount(metadata=ObjectMeta(name="default", namespace="team"))
    metadata = ObjectMeta(name=ROOT_CA_CONFIG_MAP, namespace="team")
    assert config_map.object == ConfigMap(metadata=metadata, data={CA_KEY: "PEM"})


@pytest.mark.parametrize("edited", ["", "OTHER"])
def test_edited_certificates_are_restored(edited: str) -> None:
    (patch,) = planned_defaults(ca_certificates=edited)
    assert isinstance(patch, Patch)
    assert (patch.ref, patch.patch) == (Ref("team", ROOT_CA_CONFIG_MAP), {"data": {CA_KEY: "PEM"}})


def test_conditions_do_not_depend_on_the_order_of_the_contents() -> None:
    contents = [MACHINE, CLAIM_OF_MACHINE, stored(INSTANCE, "web-1", finalizers=("b",))]
    expected = namespace_conditions((), contents, NOW)
    assert namespace_conditions((), contents[::-1], NOW) == expected
    assert all(isinstance(from_json(msgspec.to_builtins(c), type(c)), type(c)) for c in expected)
