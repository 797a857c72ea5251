"""What is deleted goes, all of it and soon, however it was asked for."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import (
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    DEPLOYMENT,
    NAMESPACE,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB
from tests.regressions.platform import WEB, Platform, on_platform


def test_a_project_namespace_that_goes_leaves_nothing_on_hub_and_cell() -> None:
    """Seen: its home on the hub and on every cell stayed, with their policies, for ever."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)

        async def homes() -> list[str]:
            listed = [
                *(await hub.list(NAMESPACE)).items,
                *(await hub.list(CLUSTER_POLICY)).items,
                *(await hub.list(CLUSTER_BINDING)).items,
                *(await hub.list(WORK)).items,
                *(await platform.cell.list(NAMESPACE)).items,
            ]
            return sorted(o.metadata.name for o in listed if o.metadata.name.startswith("ns-"))

        before = await homes()
        assert len(before) == 5
        team = Namespace(metadata=ObjectMeta(name="team"))
        uid = (await platform.project.create(NAMESPACE, team)).metadata.uid
        body = (await platform.project.get_plain(WORKLOAD, WEB))["spec"]
        meta = {"name": "web", "namespace": "team"}
        of_workload = {"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind}
        await platform.project.create_plain(
            WORKLOAD, {**of_workload, "metadata": meta, "spec": body}
        )

        async def runs() -> bool:
            return len(await platform.instances()) == 2

        await platform.until(runs, "an instance runs in the namespace")
        assert len(await homes()) == 10
        await platform.project.delete(NAMESPACE, Ref("", "team"))

        async def as_before() -> bool:
            return await homes() == before

        await platform.until(as_before, f"nothing of ns-{uid} is left")
        await platform.until_ready("web:1")  # the other is as it was

    on_platform(story, boot_s=0.0)


def test_an_empty_home_stays_while_its_source_is_there() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        before = [n.metadata.uid for n in (await hub.list(NAMESPACE)).items]
        await platform.project.delete(WORKLOAD, WEB)
        await asyncio.sleep(300)
        assert [n.metadata.uid for n in (await hub.list(NAMESPACE)).items] == before

    on_platform(story, boot_s=0.0)


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_a_workload_goes_soon_with_every_propagation_policy(policy: str) -> None:
    """Seen: with Orphan it stayed for half a minute after everything it had was gone."""

    async def story(platform: Platform) -> float:
        await platform.deploy()
        await platform.until_ready("web:1")
        started_s = asyncio.get_running_loop().time()
        await platform.project.delete(WORKLOAD, WEB, policy=policy)

        async def gone() -> bool:
            try:
                await platform.workload()
            except NotFound:
                return True
            return False

        await platform.until(gone, "the workload is gone")
        assert await platform.instances() == []
        assert (await platform.project.list(DEPLOYMENT)).items == []
        return asyncio.get_running_loop().time() - started_s

    assert on_platform(story, boot_s=0.0) < 5
