"""Behavior of Karmada alone: our interpreter rules for WorkloadDeployment, and known traps."""

from __future__ import annotations

import asyncio
import json

import pytest

from datum_compute.api import labels
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CLUSTER, CONFIG_MAP, DEFINITION, DEPLOYMENT, POLICY
from datum_compute.api.meta.objects import ObjectMeta, Ref
from tests.e2e.manifests import widget_definition
from tests.karmada.federation import Federation, Story, found
from tests.karmada.members import Members
from tests.karmada.test_propagation import report, until_hub_reports

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kubernetes,
    pytest.mark.karmada,
    pytest.mark.timeout(240),
]


def run_on_karmada(members: Members, story: Story, request: pytest.FixtureRequest) -> None:
    members.run(story, str(request.node.nodeid), mixed=False)


async def health(f: Federation) -> str:
    binding = await f.binding() or {}
    items = binding.get("status", {}).get("aggregatedStatus", [])
    return str(items[0].get("health", "")) if items else ""


def test_an_available_deployment_is_healthy(
    members: Members, request: pytest.FixtureRequest
) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)

        async def is_unhealthy() -> bool:
            return await health(f) == "Unhealthy"

        async def is_healthy() -> bool:
            return await health(f) == "Healthy"

        await f.until(is_unhealthy, "the cell has not reported")
        await report(f, f.near, generation=1, ready=1)
        await f.until(is_healthy, "the cell reports it as available")
        await f.federate(image="web:2", generation=2)
        await f.until(is_unhealthy, "the cell has not reported the new generation")

    run_on_karmada(members, story, request)


def test_references_of_a_deployment_are_propagated_if_the_policy_requests_it(
    members: Members, request: pytest.FixtureRequest
) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        metadata = ObjectMeta(name="settings", namespace=f.hub_namespace)
        await f.hub.create(CONFIG_MAP, ConfigMap(metadata=metadata, data={"colour": "blue"}))
        policy = Ref(f.hub_namespace, f"city-{f.near}")
        await f.hub.patch(POLICY, policy, {"spec": {"propagateDeps": True}})
        expected = {labels.EXPECTED_DATA: json.dumps(["ConfigMap/settings"])}
        await f.hub.patch(DEPLOYMENT, f.ref(), {"metadata": {"annotations": expected}})

        async def is_copied() -> bool:
            copy = await found(f.cells[f.near], CONFIG_MAP, Ref(f.hub_namespace, "settings"))
            return copy is not None and copy.data == {"colour": "blue"}

        await f.until(is_copied, "the ConfigMap is on the cell")
        assert await found(f.cells[f.far], CONFIG_MAP, Ref(f.hub_namespace, "settings")) is None

    run_on_karmada(members, story, request)


def test_an_empty_status_does_not_replace_the_last_report(
    members: Members, request: pytest.FixtureRequest
) -> None:
    """A recreated copy has no status at first, so the last report stays."""

    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        await report(f, f.near, generation=1, ready=1)
        await until_hub_reports(f, 1)
        before = (await f.cells[f.near].get(DEPLOYMENT, f.ref())).metadata.uid
        await f.cells[f.near].delete(DEPLOYMENT, f.ref())

        async def is_recreated() -> bool:
            copy = await f.copy(f.near)
            return copy is not None and copy.metadata.uid != before

        await f.until(is_recreated, "the copy is recreated")

        async def is_kept() -> bool:
            return (await f.hub.get(DEPLOYMENT, f.ref())).status.ready_replicas == 1

        await f.stays(is_kept, "the hub keeps the last report")

    run_on_karmada(members, story, request)


def test_an_object_whose_kind_no_cell_served_is_not_scheduled_again(
    members: Members, request: pytest.FixtureRequest
) -> None:
    """Trap 6: install kinds on a cell, and wait until Karmada has found them, before its use.

    The widget itself is never created: the account of the hub has no permission for it on cells.
    """
    definition = json.loads(widget_definition())

    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        await f.hub.create_plain(DEFINITION, definition)
        selector = {"apiVersion": "example.com/v1", "kind": "Widget"}
        affinity = {"clusterNames": [f.near]}
        policy = {
            "apiVersion": POLICY.api_version,
            "kind": POLICY.kind,
            "metadata": {"name": "widgets", "namespace": f.hub_namespace},
            "spec": {
                "resourceSelectors": [selector],
                "placement": {"clusterAffinity": affinity},
            },
        }
        await f.hub.create_plain(POLICY, policy)
        binding = f"/apis/work.karmada.io/v1alpha2/namespaces/{f.hub_namespace}/resourcebindings"
        members.karmada.admin("apply", "-f", "-", stdin=_widget(f.hub_namespace))

        async def scheduled() -> list[str]:
            listed = await f.hub.get_raw(binding)
            return [
                condition["reason"]
                for item in listed["items"]
                if item["spec"]["resource"]["kind"] == "Widget"
                for condition in item.get("status", {}).get("conditions", [])
                if condition["type"] == "Scheduled"
            ]

        async def fits_nowhere() -> bool:
            return await scheduled() == ["NoClusterFit"]

        await f.until(fits_nowhere, "no cell serves the kind")
        await f.cells[f.near].create_plain(DEFINITION, definition)

        async def is_known() -> bool:
            cluster = await f.hub.get_plain(CLUSTER, Ref("", f.near))
            served = [entry["groupVersion"] for entry in cluster["status"]["apiEnablements"]]
            return "example.com/v1" in served

        await f.until(is_known, "Karmada has found the kind on the cell")
        await asyncio.sleep(1)
        await f.stays(fits_nowhere, "the object is not scheduled again", for_s=8)
        nudge = {"metadata": {"labels": {"example.com/nudged": "yes"}}}
        await f.hub.patch(CLUSTER, Ref("", f.near), nudge)

        async def is_placed() -> bool:
            return await scheduled() == ["Success"]

        await f.until(is_placed, "a changed label of the Cluster triggers scheduling")

    run_on_karmada(members, story, request)


def _widget(namespace: str) -> str:
    return json.dumps(
        {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "one", "namespace": namespace},
            "spec": {"size": 1},
        }
    )
