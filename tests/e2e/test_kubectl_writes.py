"""Writes with kubectl: apply, create, replace, patch, label, annotate and dry runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datum_compute.api.labels import CHANGED_BY
from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import config_map, image, listed, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

SERVER_SIDE = ("apply", "--server-side", "-f", "-")


def get_with_managed_fields(kubectl: Kubectl, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", kind, name, "--show-managed-fields")
    return found


def managers(obj: dict[str, Any]) -> dict[tuple[str, str], Any]:
    entries = obj["metadata"]["managedFields"]
    return {
        (e["manager"], e["operation"]): e["fieldsV1"] for e in entries if not e.get("subresource")
    }


# --- apply


def test_apply_creates_changes_and_removes_fields_missing_from_the_manifest(
    in_namespace: Kubectl,
) -> None:
    assert "created" in in_namespace("apply", "-f", "-", stdin=workload(labels={"team": "a"}))
    before = in_namespace.json("get", "workload", "web")
    in_namespace("apply", "-f", "-", stdin=workload(labels={"team": "a"}))
    assert in_namespace.json("get", "workload", "web") == before, (
        "an unchanged manifest writes nothing"
    )
    assert "configured" in in_namespace("apply", "-f", "-", stdin=workload(image="web:2"))
    after = in_namespace.json("get", "workload", "web")
    assert image(after) == "web:2"
    assert "labels" not in after["metadata"]


def test_apply_accepts_a_directory_and_a_list(in_namespace: Kubectl, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(config_map(name, color="blue"))
    assert in_namespace("apply", "-f", str(tmp_path)).count("created") == 2
    changed = [config_map(name, color="red") for name in ("a", "c")]
    output = in_namespace("apply", "-f", "-", stdin=listed(*changed))
    assert ("configmap/a configured" in output, "configmap/c created" in output) == (True, True)


def test_prune_deletes_objects_that_are_no_longer_applied(in_namespace: Kubectl) -> None:
    select = ("--prune", "-l", "app=pruned", "--prune-allowlist=core/v1/ConfigMap")
    labels = {"app": "pruned"}
    both = [config_map(name, labels=labels) for name in ("stays", "goes")]
    in_namespace("apply", "-f", "-", stdin=listed(*both))
    in_namespace("apply", "-f", "-", stdin=config_map("other"))
    output = in_namespace("apply", "-f", "-", *select, stdin=config_map("stays", labels=labels))
    assert "configmap/goes pruned" in output
    left = in_namespace("get", "cm", "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt", "configmap/other", "configmap/stays"]


def test_an_invalid_manifest_is_rejected_with_the_field_name(
    in_namespace: Kubectl,
) -> None:
    manifest = json.loads(workload())
    manifest["spec"]["placements"][0]["cityCodez"] = ["DFW"]
    error = in_namespace.error_of("apply", "-f", "-", stdin=json.dumps(manifest))
    assert "spec.placements[0].cityCodez" in error
    manifest["spec"]["placements"] = []
    error = in_namespace.error_of(
        "apply", "-f", "-", "--validate=false", stdin=json.dumps(manifest)
    )
    assert "spec.placements" in error
    assert in_namespace("get", "workloads", "-o", "name") == ""


def test_server_side_apply_creates_changes_and_removes_fields(in_namespace: Kubectl) -> None:
    assert "serverside-applied" in in_namespace(*SERVER_SIDE, stdin=workload(labels={"team": "a"}))
    before = get_with_managed_fields(in_namespace, "workload", "web")
    in_namespace(*SERVER_SIDE, stdin=workload(labels={"team": "a"}))
    assert get_with_managed_fields(in_namespace, "workload", "web") == before
    in_namespace(*SERVER_SIDE, stdin=workload(image="web:2"))
    after = get_with_managed_fields(in_namespace, "workload", "web")
    assert image(after) == "web:2"
    assert "labels" not in after["metadata"]


def test_server_side_apply_takes_over_from_client_side_apply(in_namespace: Kubectl) -> None:
    in_namespace("apply", "-f", "-", stdin=workload(labels={"team": "a"}))
    assert ("kubectl-client-side-apply", "Update") in managers(
        get_with_managed_fields(in_namespace, "workload", "web")
    )
    in_namespace(*SERVER_SIDE, stdin=workload(image="web:2", labels={"team": "a"}))
    after = get_with_managed_fields(in_namespace, "workload", "web")
    assert image(after) == "web:2"
    assert ("kubectl", "Apply") in managers(after)
    assert ("kubectl-client-side-apply", "Update") not in managers(after)
    in_namespace(*SERVER_SIDE, stdin=workload(image="web:2"))
    assert "labels" not in get_with_managed_fields(in_namespace, "workload", "web")["metadata"]


def test_a_field_of_another_manager_is_a_conflict_until_it_is_forced(in_namespace: Kubectl) -> None:
    first = (*SERVER_SIDE, "--field-manager=first")
    second = (*SERVER_SIDE, "--field-manager=second")
    in_namespace(*first, stdin=workload())
    error = in_namespace.error_of(*second, stdin=workload(image="web:2"))
    assert "Apply failed with 1 conflict" in error
    assert '"first"' in error
    assert ".image" in error
    assert image(get_with_managed_fields(in_namespace, "workload", "web")) == "web:1"
    in_namespace(*second, "--force-conflicts", stdin=workload(image="web:2"))
    after = get_with_managed_fields(in_namespace, "workload", "web")
    assert image(after) == "web:2"
    assert {("first", "Apply"), ("second", "Apply")} <= set(managers(after))
    assert '"second"' in in_namespace.error_of(*first, stdin=workload())


def test_other_writes_are_tracked_by_field_manager(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    in_namespace("label", "workload", "web", "extra=1")
    in_namespace("annotate", "workload", "web", "why=because")
    found = managers(get_with_managed_fields(in_namespace, "workload", "web"))
    assert ("kubectl-create", "Update") in found
    assert found["kubectl-label", "Update"] == {
        "f:metadata": {"f:labels": {".": {}, "f:extra": {}}}
    }
    assert "f:annotations" in found["kubectl-annotate", "Update"]["f:metadata"]


# --- dry runs


@pytest.mark.parametrize("verb", [("create",), ("apply",), ("apply", "--server-side")])
def test_a_dry_run_checks_everything_and_writes_nothing(
    in_namespace: Kubectl, verb: tuple[str, ...]
) -> None:
    dry = (*verb, "-f", "-", "--dry-run=server")
    output = in_namespace(*dry, "-o", "json", stdin=workload())
    assert json.loads(output)["spec"]["placements"][0]["scaleSettings"]["instanceManagementPolicy"]
    bad = workload().replace('"DFW"', '""')
    assert "cityCodes" in in_namespace.error_of(*dry, stdin=bad)
    assert in_namespace("get", "workloads", "-o", "name") == ""


def test_dry_runs_of_changes_do_not_change_the_object(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=config_map("kept", color="blue"))
    before = get_with_managed_fields(in_namespace, "cm", "kept")
    for change in (
        ("patch", "cm", "kept", "-p", '{"data":{"color":"red"}}'),
        ("label", "cm", "kept", "a=b"),
        ("delete", "cm", "kept"),
    ):
        in_namespace(*change, "--dry-run=server")
    assert get_with_managed_fields(in_namespace, "cm", "kept") == before


# --- patches, labels, annotations


def test_every_kind_of_patch_changes_a_core_object(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=config_map("c", color="blue", size="1"))
    patch = ("patch", "cm", "c")
    in_namespace(*patch, "--type=merge", "-p", '{"data":{"size":null,"merge":"1"}}')
    in_namespace(*patch, "--type=strategic", "-p", '{"data":{"strategic":"1"}}')
    in_namespace(*patch, "-p", '{"metadata":{"finalizers":["example.com/a"]}}')
    in_namespace(*patch, "-p", '{"metadata":{"finalizers":["example.com/b"]}}')
    operations = [{"op": "test", "path": "/data/color", "value": "blue"}]
    operations += [{"op": "replace", "path": "/data/color", "value": "red"}]
    in_namespace(*patch, "--type=json", "-p", json.dumps(operations))
    found = in_namespace.json("get", "cm", "c")
    assert found["data"] == {"color": "red", "merge": "1", "strategic": "1"}
    assert sorted(found["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    error = in_namespace.error_of(*patch, "--type=json", "-p", json.dumps(operations))
    assert "test" in error
    less = {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}
    in_namespace(*patch, "-p", json.dumps({"metadata": less}))


def test_a_kind_of_ours_accepts_merge_and_json_patches_but_no_strategic_ones(
    in_namespace: Kubectl,
) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    patch = ("patch", "workload", "web")
    in_namespace(*patch, "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    path = "/spec/template/spec/runtime/sandbox/containers/0/image"
    in_namespace(
        *patch, "--type=json", "-p", f'[{{"op":"replace","path":"{path}","value":"web:3"}}]'
    )
    found = in_namespace.json("get", "workload", "web")
    assert (found["metadata"]["labels"], image(found)) == ({"a": "b"}, "web:3")
    error = in_namespace.error_of(
        *patch, "--type=strategic", "-p", '{"metadata":{"labels":{"c":"d"}}}'
    )
    assert "application/merge-patch+json" in error


def test_the_status_is_patched_through_its_subresource_only(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    patch = ("patch", "workload", "web", "--type=merge", "-p", '{"status":{"replicas":4}}')
    in_namespace(*patch)
    assert in_namespace("get", "workload", "web", "-o=jsonpath={.status.replicas}") == ""
    in_namespace(*patch, "--subresource=status")
    assert in_namespace("get", "workload", "web", "-o=jsonpath={.status.replicas}") == "4"
    shown_status = in_namespace.json("get", "workload", "web", "--subresource=status")
    assert shown_status["status"]["replicas"] == 4


def test_labels_and_annotations_are_set_changed_and_removed(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    for verb, part in (("label", "labels"), ("annotate", "annotations")):
        in_namespace(verb, "workload", "web", "tier=gold", "team=a")
        assert "--overwrite" in in_namespace.error_of(verb, "workload", "web", "tier=silver")
        in_namespace(verb, "workload", "web", "tier=silver", "--overwrite")
        in_namespace(verb, "workloads", "--all", "team-")
        found = in_namespace.json("get", "workload", "web")["metadata"][part]
        assert {k: v for k, v in found.items() if k != CHANGED_BY} == {"tier": "silver"}


def test_an_invalid_label_is_refused(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    merge = '{"metadata":{"labels":{"a":"not valid"}}}'
    error = in_namespace.error_of("patch", "workload", "web", "--type=merge", "-p", merge)
    assert "metadata.labels" in error


# --- create and replace


def test_create_refuses_an_existing_object_and_replace_a_missing_one(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    assert "already exists" in in_namespace.error_of("create", "-f", "-", stdin=workload())
    in_namespace("replace", "-f", "-", stdin=workload(image="web:2"))
    assert image(in_namespace.json("get", "workload", "web")) == "web:2"
    assert "not found" in in_namespace.error_of("replace", "-f", "-", stdin=workload("absent"))
    before = in_namespace.json("get", "workload", "web")["metadata"]["uid"]
    in_namespace("replace", "--force", "-f", "-", stdin=workload(image="web:3"))
    after = in_namespace.json("get", "workload", "web")
    assert (image(after), after["metadata"]["uid"] != before) == ("web:3", True)


def test_a_replace_with_an_old_version_conflicts(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=config_map("c"))
    stale = json.dumps(in_namespace.json("get", "cm", "c"))
    in_namespace("label", "cm", "c", "a=b")
    error = in_namespace.error_of("replace", "-f", "-", stdin=stale)
    assert "the object has been modified" in error


def test_generate_name_creates_unique_names(in_namespace: Kubectl) -> None:
    manifest = json.loads(config_map("x"))
    manifest["metadata"] = {"generateName": "made-"}
    made = {
        in_namespace("create", "-f", "-", "-o=name", stdin=json.dumps(manifest)) for _ in range(3)
    }
    assert len(made) == 3
    assert all(name.startswith("configmap/made-") for name in made)
