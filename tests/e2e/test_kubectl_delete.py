"""``kubectl delete`` with every cascade, and waiting for deletion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from tests.e2e.manifests import config_map, listed, owned, widget, widget_definition, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

FINALIZERS = ("example.com/held",)


def create_owner(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("create", "-f", "-", stdin=workload())
    return found


def names(kubectl: Kubectl, kinds: str = "workloads,configmaps") -> list[str]:
    found = kubectl("get", kinds, "-o", "jsonpath={.items[*].metadata.name}").split()
    return [name for name in found if name != "kube-root-ca.crt"]


def remove_finalizers(kubectl: Kubectl, name: str) -> None:
    patch = '{"metadata":{"finalizers":null}}'
    kubectl("patch", "configmap", name, "--type=merge", "-p", patch)


def test_background_deletion_deletes_the_owner_first(in_namespace: Kubectl) -> None:
    in_namespace(
        "create", "-f", "-", stdin=owned("child", create_owner(in_namespace), finalizers=FINALIZERS)
    )
    in_namespace("delete", "workload", "web", "--cascade=background")
    assert names(in_namespace) == ["child"]
    terminating = "jsonpath={.metadata.deletionTimestamp}"
    eventually(
        lambda: in_namespace("get", "cm", "child", "-o", terminating) != "", "the child is deleted"
    )
    remove_finalizers(in_namespace, "child")
    assert names(in_namespace) == []


def test_foreground_deletion_keeps_the_owner_until_its_dependents_are_deleted(
    in_namespace: Kubectl,
) -> None:
    in_namespace(
        "create", "-f", "-", stdin=owned("child", create_owner(in_namespace), finalizers=FINALIZERS)
    )
    in_namespace("delete", "workload", "web", "--cascade=foreground", "--wait=false")
    terminating = "jsonpath={.metadata.deletionTimestamp}"
    eventually(
        lambda: in_namespace("get", "cm", "child", "-o", terminating) != "", "the child is deleted"
    )
    web = in_namespace.json("get", "workload", "web")
    assert web["metadata"]["finalizers"] == ["foregroundDeletion"]
    remove_finalizers(in_namespace, "child")
    in_namespace("wait", "workload/web", "--for=delete", "--timeout=20s")
    assert names(in_namespace) == []


def test_orphaned_dependents_stay_without_owner_references(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=owned("child", create_owner(in_namespace)))
    in_namespace("delete", "workload", "web", "--cascade=orphan")
    assert names(in_namespace) == ["child"]
    assert "ownerReferences" not in in_namespace.json("get", "cm", "child")["metadata"]


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_roles_are_deleted_with_every_cascade(in_namespace: Kubectl, cascade: str) -> None:
    in_namespace("create", "role", "parent", "--verb=get", "--resource=configmaps")
    binding = ("create", "rolebinding", "child", "--role=parent", "--user=ann", "--dry-run=client")
    child = in_namespace.json(*binding)
    parent = in_namespace.json("get", "role", "parent")
    reference = json.loads(owned("x", parent))["metadata"]["ownerReferences"]
    child["metadata"]["ownerReferences"] = reference
    in_namespace("create", "-f", "-", stdin=json.dumps(child))
    in_namespace("delete", "role", "parent", f"--cascade={cascade}", "--timeout=20s")
    left = ["child"] if cascade == "orphan" else []
    eventually(
        lambda: names(in_namespace, "rolebindings") == left, "the binding is deleted or orphaned"
    )
    assert names(in_namespace, "roles") == []


def test_objects_are_deleted_by_label_by_file_and_all(in_namespace: Kubectl) -> None:
    teams = {"a": "x", "b": "x", "c": "y", "d": "y"}
    made = [config_map(name, labels={"team": team}) for name, team in teams.items()]
    in_namespace("create", "-f", "-", stdin=listed(*made))
    in_namespace("delete", "cm", "-l", "team=x")
    assert names(in_namespace) == ["c", "d"]
    assert 'configmap "c" deleted' in in_namespace("delete", "-f", "-", stdin=made[2])
    in_namespace("delete", "cm", "--all")
    eventually(lambda: names(in_namespace) == [], "all are deleted")
    assert "not found" in in_namespace.error_of("delete", "cm", "d")
    in_namespace("delete", "cm", "d", "--ignore-not-found")


def test_delete_waits_until_the_object_is_removed(in_namespace: Kubectl) -> None:
    held = json.loads(config_map("held"))
    held["metadata"]["finalizers"] = list(FINALIZERS)
    in_namespace("create", "-f", "-", stdin=json.dumps(held))
    assert "timed out" in in_namespace.error_of("delete", "cm", "held", "--timeout=1s")
    with in_namespace.start_command("delete", "cm", "held", "--timeout=20s") as deleting:
        assert deleting.next_words()[:2] == ["configmap", '"held"']
        remove_finalizers(in_namespace, "held")
    in_namespace("wait", "cm/held", "--for=delete", "--timeout=20s")


def test_a_stuck_namespace_reports_the_remaining_finalizers(in_platform: Kubectl) -> None:
    in_platform("create", "namespace", "stuck")
    inside = in_platform.in_namespace("stuck")
    held = json.loads(config_map("held"))
    held["metadata"]["finalizers"] = list(FINALIZERS)
    inside("create", "-f", "-", stdin=json.dumps(held))
    in_platform("delete", "namespace", "stuck", "--wait=false")
    in_platform(
        *("wait", "namespace/stuck", "--for=condition=NamespaceFinalizersRemaining"),
        "--timeout=20s",
    )
    assert "example.com/held in 1 resource instances" in in_platform("describe", "ns", "stuck")
    assert "being terminated" in inside.error_of("create", "configmap", "late")
    remove_finalizers(inside, "held")
    in_platform("wait", "namespace/stuck", "--for=delete", "--timeout=20s")


def test_custom_objects_are_deleted_with_their_definition(in_namespace: Kubectl) -> None:
    definition = json.loads(widget_definition().replace("widgets", "gadgets"))
    definition["spec"]["names"] |= {"singular": "gadget", "kind": "Gadget", "shortNames": []}
    in_namespace("apply", "-f", "-", stdin=json.dumps(definition))
    in_namespace("wait", "crd/gadgets.example.com", "--for=condition=Established", "--timeout=20s")
    gadget = widget("one").replace("Widget", "Gadget")
    in_namespace("create", "-f", "-", stdin=gadget)
    parent = in_namespace.json("get", "gadgets.example.com", "one")
    in_namespace("create", "-f", "-", stdin=owned("child", parent))
    in_namespace("delete", "gadget", "one", "--cascade=foreground", "--timeout=20s")
    assert names(in_namespace) == []
    in_namespace("create", "-f", "-", stdin=gadget)
    in_namespace("delete", "crd", "gadgets.example.com", "--timeout=20s")
    assert "doesn't have a resource type" in in_namespace.error_of("get", "gadgets.example.com")
