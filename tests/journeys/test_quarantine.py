"""Quarantine of hub copies without an owner, on the whole platform."""

from __future__ import annotations

import asyncio

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.kinds import EVENT, INSTANCE, NAMESPACE
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.client.client import Client
from datum_compute.planning.federation.instances import GRACE_S, quarantine_reason
from tests.journeys.platform import Platform, on_platform

UNOWNED = "unowned-0"


async def create_unowned_copy(
    hub: Client, copy: Instance, at: Ref | None = None, **given: str
) -> Ref:
    """Create a copy with these labels that no cell has written."""
    ref = at or Ref(copy.metadata.namespace, UNOWNED)
    body: JsonObject = {
        "apiVersion": INSTANCE.api_version,
        "kind": INSTANCE.kind,
        "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": given},
        "spec": to_json(copy.spec),
    }
    await hub.create_plain(INSTANCE, body)
    return ref


def next_name(copy: Instance, ordinal: int = 7) -> Ref:
    """Return the name of an ordinal of the deployment that no instance has."""
    deployment = copy.metadata.labels[labels.DEPLOYMENT_NAME]
    return Ref(copy.metadata.namespace, f"{deployment}-{ordinal}")


async def reports(hub: Client) -> list[str]:
    events = (await hub.list_plain(EVENT)).items
    return [e["message"] for e in events if e["reason"] == "Quarantined"]


def test_a_copy_without_identity_is_quarantined_with_one_event_until_it_has_one() -> None:
    async def story(platform: Platform) -> tuple[list[str], str, list[str], str]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        ref = await create_unowned_copy(hub, copy, next_name(copy))
        await asyncio.sleep(GRACE_S * 4)
        events, reason = await reports(hub), quarantine_reason(await hub.get(INSTANCE, ref))
        kept = {k: v for k, v in copy.metadata.labels.items() if k != labels.CELL}
        await hub.patch(INSTANCE, ref, {"metadata": {"labels": kept}})
        await asyncio.sleep(1)
        names = [i.metadata.name for i in (await platform.project.list(INSTANCE)).items]
        shown = ["shown" for name in names if name == ref.name]
        return events, reason, shown, quarantine_reason(await hub.get(INSTANCE, ref))

    events, reason, shown, after = on_platform(story)
    assert len(events) == 1, events
    assert labels.UPSTREAM_CLUSTER in events[0]
    assert reason == "IdentityMissing"
    assert shown == ["shown"]
    assert after == ""


def test_the_projection_of_a_copy_that_lost_its_identity_is_deleted() -> None:
    """Regression: after the loss of its cell the project kept its last state, even when the copy
    was deleted. Its hub namespace identifies the project.
    """
    junk = {"metadata": {"labels": {labels.UPSTREAM_CLUSTER: "junk"}}}

    async def story(platform: Platform) -> list[tuple[bool, bool]]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        given = {k: v for k, v in copy.metadata.labels.items() if k != labels.CELL}
        stays = await create_unowned_copy(hub, copy, next_name(copy, 7), **given)
        goes = await create_unowned_copy(hub, copy, next_name(copy, 8), **given)
        seen: list[tuple[bool, bool]] = []
        for wait_s in (1.0, 1.0, GRACE_S * 2):
            await asyncio.sleep(wait_s)
            shown = [i.metadata.name for i in (await platform.project.list(INSTANCE)).items]
            seen.append((stays.name in shown, goes.name in shown))
            if len(seen) == 1:
                for ref in (stays, goes):
                    await hub.patch(INSTANCE, ref, junk)
                await hub.delete(INSTANCE, goes)
        return seen

    at_first, then, set_apart = on_platform(story)
    assert at_first == (True, True)
    assert then == (True, False), "others have a while to put it right; what is gone is gone"
    assert set_apart == (False, False)


def test_a_copy_of_a_deployment_that_its_project_does_not_have_is_quarantined() -> None:
    async def story(platform: Platform) -> tuple[list[str], str, bool]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        given = {**copy.metadata.labels, labels.DEPLOYMENT_NAME: "never-was"}
        given.pop(labels.CELL)
        at = Ref(copy.metadata.namespace, "never-was-0")
        ref = await create_unowned_copy(hub, copy, at, **given)
        await asyncio.sleep(GRACE_S * 4)
        names = [i.metadata.name for i in (await platform.project.list(INSTANCE)).items]
        return (
            await reports(hub),
            quarantine_reason(await hub.get(INSTANCE, ref)),
            ref.name in names,
        )

    events, reason, shown = on_platform(story)
    assert len(events) == 1, events
    assert "never-was" in events[0]
    assert reason == "DeploymentNotFound"
    assert not shown


def test_a_copy_that_names_another_project_is_quarantined_and_not_projected() -> None:
    """The copy is outside of that project's hub namespace and has the name of a real instance."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        given = {k: v for k, v in copy.metadata.labels.items() if k != labels.CELL}
        before = (await platform.project.list(INSTANCE)).items
        ref = await create_unowned_copy(hub, copy, Ref("default", copy.metadata.name), **given)
        other = await create_unowned_copy(hub, copy, Ref("default", UNOWNED), **given)
        await asyncio.sleep(GRACE_S * 4)
        assert len(await reports(hub)) == 2
        for copied in (ref, other):
            assert quarantine_reason(await hub.get(INSTANCE, copied)) == "IdentityForeign"
        assert (await platform.project.list(INSTANCE)).items == before
        # A changed identity is checked at once. It is wrong again, so a second event follows.
        await hub.patch(
            INSTANCE, other, {"metadata": {"labels": {labels.UPSTREAM_NAMESPACE: None}}}
        )
        await asyncio.sleep(GRACE_S * 4)
        assert len(await reports(hub)) == 3
        assert quarantine_reason(await hub.get(INSTANCE, other)) == "IdentityMissing"

    on_platform(story)


def test_a_copy_without_an_ordinal_of_its_deployment_is_not_projected() -> None:
    async def story(platform: Platform) -> tuple[list[list[str]], list[str], list[str]]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        given = {k: v for k, v in copy.metadata.labels.items() if k != labels.CELL}
        deployment, namespace = given[labels.DEPLOYMENT_NAME], copy.metadata.namespace
        ends = ("abc", "01", "-1", "99999999999", "0-0")
        names = [f"{deployment}-{end}" for end in ends] + [UNOWNED]
        refs = [
            await create_unowned_copy(hub, copy, Ref(namespace, name), **given) for name in names
        ]
        seen: list[list[str]] = []
        for wait_s in (1.0, GRACE_S * 4):
            await asyncio.sleep(wait_s)
            shown = [i.metadata.name for i in (await platform.project.list(INSTANCE)).items]
            seen.append([name for name in shown if name != copy.metadata.name])
        reasons = [quarantine_reason(await hub.get(INSTANCE, ref)) for ref in refs]
        return seen, reasons, await reports(hub)

    seen, reasons, events = on_platform(story)
    assert seen == [[], []]
    assert reasons == ["OrdinalInvalid"] * 6
    assert len(events) == 6


def test_scaling_down_quarantines_nothing() -> None:
    """For a moment, copies have ordinals beyond the replica count."""

    async def story(platform: Platform) -> tuple[list[str], int]:
        await platform.deploy(replicas=3)
        await platform.until_ready("web:1", 3)
        scale = {"minReplicas": 1}
        placement = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": scale}
        await platform.change(placements=[placement])
        await asyncio.sleep(GRACE_S * 4)
        shown = (await platform.project.list(INSTANCE)).items
        return await reports(platform.host.operator(HUB)), len(shown)

    assert on_platform(story) == ([], 1)


def test_edited_labels_of_a_hub_namespace_are_restored_and_its_copies_not_quarantined() -> None:
    """Regression: no controller restored these labels, but others use them to find the project."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        home = Ref("", copy.metadata.namespace)
        before = (await hub.get(NAMESPACE, home)).metadata.labels
        for label in (labels.UPSTREAM_NAMESPACE, labels.UPSTREAM_CLUSTER):
            for value in ("junk", None):
                await asyncio.sleep(30)
                await hub.patch(NAMESPACE, home, {"metadata": {"labels": {label: value}}})
                await asyncio.sleep(1)
                assert (await hub.get(NAMESPACE, home)).metadata.labels == before
        await asyncio.sleep(GRACE_S * 4)
        assert await reports(hub) == []

    on_platform(story)
