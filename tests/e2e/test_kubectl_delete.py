"""``kubectl delete`` with every way to treat what depends on an object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from tests.e2e.manifests import config_map, listed, owned, widget, widget_definition, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

HELD = ("example.com/held",)


def owner(here: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = here.json("create", "-f", "-", stdin=workload())
    return found


def names(here: Kubectl, kinds: str = "workloads,configmaps") -> list[str]:
    found = here("get", kinds, "-o", "jsonpath={.items[*].metadata.name}").split()
    return [name for name in found if name != "kube-root-ca.crt"]


def release(here: Kubectl, name: str) -> None:
    patch = '{"metadata":{"finalizers":null}}'
    here("patch", "configmap", name, "--type=merge", "-p", patch)


def test_in_the_background_the_owner_goes_first(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=owned("child", owner(space), finalizers=HELD))
    space("delete", "workload", "web", "--cascade=background")
    assert names(space) == ["child"]
    terminating = "jsonpath={.metadata.deletionTimestamp}"
    eventually(lambda: space("get", "cm", "child", "-o", terminating) != "", "the child follows")
    release(space, "child")
    assert names(space) == []


def test_in_the_foreground_the_owner_waits(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=owned("child", owner(space), finalizers=HELD))
    space("delete", "workload", "web", "--cascade=foreground", "--wait=false")
    terminating = "jsonpath={.metadata.deletionTimestamp}"
    eventually(lambda: space("get", "cm", "child", "-o", terminating) != "", "the child follows")
    web = space.json("get", "workload", "web")
    assert web["metadata"]["finalizers"] == ["foregroundDeletion"]
    release(space, "child")
    space("wait", "workload/web", "--for=delete", "--timeout=20s")
    assert names(space) == []


def test_orphans_stay_without_their_owner(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=owned("child", owner(space)))
    space("delete", "workload", "web", "--cascade=orphan")
    assert names(space) == ["child"]
    assert "ownerReferences" not in space.json("get", "cm", "child")["metadata"]


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_roles_go_like_anything_else(space: Kubectl, cascade: str) -> None:
    space("create", "role", "parent", "--verb=get", "--resource=configmaps")
    binding = ("create", "rolebinding", "child", "--role=parent", "--user=ann", "--dry-run=client")
    child = space.json(*binding)
    parent = space.json("get", "role", "parent")
    reference = json.loads(owned("x", parent))["metadata"]["ownerReferences"]
    child["metadata"]["ownerReferences"] = reference
    space("create", "-f", "-", stdin=json.dumps(child))
    space("delete", "role", "parent", f"--cascade={cascade}", "--timeout=20s")
    left = ["child"] if cascade == "orphan" else []
    eventually(lambda: names(space, "rolebindings") == left, "the binding follows")
    assert names(space, "roles") == []


def test_many_are_deleted_by_label_by_file_and_all_together(space: Kubectl) -> None:
    teams = {"a": "x", "b": "x", "c": "y", "d": "y"}
    made = [config_map(name, labels={"team": team}) for name, team in teams.items()]
    space("create", "-f", "-", stdin=listed(*made))
    space("delete", "cm", "-l", "team=x")
    assert names(space) == ["c", "d"]
    assert 'configmap "c" deleted' in space("delete", "-f", "-", stdin=made[2])
    space("delete", "cm", "--all")
    eventually(lambda: names(space) == [], "all are gone")
    assert "not found" in space.refused("delete", "cm", "d")
    space("delete", "cm", "d", "--ignore-not-found")


def test_delete_waits_until_the_object_has_really_gone(space: Kubectl) -> None:
    held = json.loads(config_map("held"))
    held["metadata"]["finalizers"] = list(HELD)
    space("create", "-f", "-", stdin=json.dumps(held))
    assert "timed out" in space.refused("delete", "cm", "held", "--timeout=1s")
    with space.started("delete", "cm", "held", "--timeout=20s") as deleting:
        assert deleting.next()[:2] == ["configmap", '"held"']
        release(space, "held")
    space("wait", "cm/held", "--for=delete", "--timeout=20s")


def test_a_namespace_that_cannot_go_says_why(in_platform: Kubectl) -> None:
    in_platform("create", "namespace", "stuck")
    inside = in_platform.within("stuck")
    held = json.loads(config_map("held"))
    held["metadata"]["finalizers"] = list(HELD)
    inside("create", "-f", "-", stdin=json.dumps(held))
    in_platform("delete", "namespace", "stuck", "--wait=false")
    in_platform(
        *("wait", "namespace/stuck", "--for=condition=NamespaceFinalizersRemaining"),
        "--timeout=20s",
    )
    assert "example.com/held in 1 resource instances" in in_platform("describe", "ns", "stuck")
    assert "being terminated" in inside.refused("create", "configmap", "late")
    release(inside, "held")
    in_platform("wait", "namespace/stuck", "--for=delete", "--timeout=20s")


def test_objects_of_a_kind_made_at_run_time_go_with_it(space: Kubectl) -> None:
    definition = json.loads(widget_definition().replace("widgets", "gadgets"))
    definition["spec"]["names"] |= {"singular": "gadget", "kind": "Gadget", "shortNames": []}
    space("apply", "-f", "-", stdin=json.dumps(definition))
    space("wait", "crd/gadgets.example.com", "--for=condition=Established", "--timeout=20s")
    gadget = widget("one").replace("Widget", "Gadget")
    space("create", "-f", "-", stdin=gadget)
    parent = space.json("get", "gadgets.example.com", "one")
    space("create", "-f", "-", stdin=owned("child", parent))
    space("delete", "gadget", "one", "--cascade=foreground", "--timeout=20s")
    assert names(space) == []
    space("create", "-f", "-", stdin=gadget)
    space("delete", "crd", "gadgets.example.com", "--timeout=20s")
    assert "doesn't have a resource type" in space.refused("get", "gadgets.example.com")
