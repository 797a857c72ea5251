"""Every way in which kubectl writes, over the real socket."""

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


def shown(here: Kubectl, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = here.json("get", kind, name, "--show-managed-fields")
    return found


def managers(obj: dict[str, Any]) -> dict[tuple[str, str], Any]:
    entries = obj["metadata"]["managedFields"]
    return {
        (e["manager"], e["operation"]): e["fieldsV1"] for e in entries if not e.get("subresource")
    }


# --- apply


def test_apply_creates_changes_and_takes_away_what_is_no_longer_said(space: Kubectl) -> None:
    assert "created" in space("apply", "-f", "-", stdin=workload(labels={"team": "a"}))
    before = space.json("get", "workload", "web")
    space("apply", "-f", "-", stdin=workload(labels={"team": "a"}))
    assert space.json("get", "workload", "web") == before, "the same again writes nothing"
    assert "configured" in space("apply", "-f", "-", stdin=workload(image="web:2"))
    after = space.json("get", "workload", "web")
    assert image(after) == "web:2"
    assert "labels" not in after["metadata"]


def test_apply_of_a_whole_directory_and_of_a_list(space: Kubectl, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(config_map(name, color="blue"))
    assert space("apply", "-f", str(tmp_path)).count("created") == 2
    changed = [config_map(name, color="red") for name in ("a", "c")]
    told = space("apply", "-f", "-", stdin=listed(*changed))
    assert ("configmap/a configured" in told, "configmap/c created" in told) == (True, True)


def test_prune_removes_what_is_no_longer_applied(space: Kubectl) -> None:
    select = ("--prune", "-l", "app=pruned", "--prune-allowlist=core/v1/ConfigMap")
    labels = {"app": "pruned"}
    both = [config_map(name, labels=labels) for name in ("stays", "goes")]
    space("apply", "-f", "-", stdin=listed(*both))
    space("apply", "-f", "-", stdin=config_map("other"))
    told = space("apply", "-f", "-", *select, stdin=config_map("stays", labels=labels))
    assert "configmap/goes pruned" in told
    left = space("get", "cm", "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt", "configmap/other", "configmap/stays"]


def test_a_mistake_in_a_manifest_is_named_with_its_field_and_changes_nothing(
    space: Kubectl,
) -> None:
    manifest = json.loads(workload())
    manifest["spec"]["placements"][0]["cityCodez"] = ["DFW"]
    error = space.refused("apply", "-f", "-", stdin=json.dumps(manifest))
    assert "spec.placements[0].cityCodez" in error
    manifest["spec"]["placements"] = []
    error = space.refused("apply", "-f", "-", "--validate=false", stdin=json.dumps(manifest))
    assert "spec.placements" in error
    assert space("get", "workloads", "-o", "name") == ""


def test_server_side_apply_creates_changes_and_gives_up_fields(space: Kubectl) -> None:
    assert "serverside-applied" in space(*SERVER_SIDE, stdin=workload(labels={"team": "a"}))
    before = shown(space, "workload", "web")
    space(*SERVER_SIDE, stdin=workload(labels={"team": "a"}))
    assert shown(space, "workload", "web") == before
    space(*SERVER_SIDE, stdin=workload(image="web:2"))
    after = shown(space, "workload", "web")
    assert image(after) == "web:2"
    assert "labels" not in after["metadata"]


def test_server_side_apply_takes_over_from_client_side_apply(space: Kubectl) -> None:
    space("apply", "-f", "-", stdin=workload(labels={"team": "a"}))
    assert ("kubectl-client-side-apply", "Update") in managers(shown(space, "workload", "web"))
    space(*SERVER_SIDE, stdin=workload(image="web:2", labels={"team": "a"}))
    after = shown(space, "workload", "web")
    assert image(after) == "web:2"
    assert ("kubectl", "Apply") in managers(after)
    assert ("kubectl-client-side-apply", "Update") not in managers(after)
    space(*SERVER_SIDE, stdin=workload(image="web:2"))
    assert "labels" not in shown(space, "workload", "web")["metadata"]


def test_a_field_of_another_manager_is_a_conflict_until_it_is_forced(space: Kubectl) -> None:
    first = (*SERVER_SIDE, "--field-manager=first")
    second = (*SERVER_SIDE, "--field-manager=second")
    space(*first, stdin=workload())
    error = space.refused(*second, stdin=workload(image="web:2"))
    assert "Apply failed with 1 conflict" in error
    assert '"first"' in error
    assert ".image" in error
    assert image(shown(space, "workload", "web")) == "web:1"
    space(*second, "--force-conflicts", stdin=workload(image="web:2"))
    after = shown(space, "workload", "web")
    assert image(after) == "web:2"
    assert {("first", "Apply"), ("second", "Apply")} <= set(managers(after))
    assert '"second"' in space.refused(*first, stdin=workload())


def test_other_writes_are_tracked_under_their_own_names(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload())
    space("label", "workload", "web", "extra=1")
    space("annotate", "workload", "web", "why=because")
    found = managers(shown(space, "workload", "web"))
    assert ("kubectl-create", "Update") in found
    assert found["kubectl-label", "Update"] == {"f:metadata": {"f:labels": {"f:extra": {}}}}
    assert "f:annotations" in found["kubectl-annotate", "Update"]["f:metadata"]


# --- dry runs


@pytest.mark.parametrize("verb", [("create",), ("apply",), ("apply", "--server-side")])
def test_a_dry_run_checks_everything_and_writes_nothing(
    space: Kubectl, verb: tuple[str, ...]
) -> None:
    dry = (*verb, "-f", "-", "--dry-run=server")
    told = space(*dry, "-o", "json", stdin=workload())
    assert json.loads(told)["spec"]["placements"][0]["scaleSettings"]["instanceManagementPolicy"]
    bad = workload().replace('"DFW"', '""')
    assert "cityCodes" in space.refused(*dry, stdin=bad)
    assert space("get", "workloads", "-o", "name") == ""


def test_dry_runs_of_changes_leave_the_object_alone(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=config_map("kept", color="blue"))
    before = shown(space, "cm", "kept")
    for change in (
        ("patch", "cm", "kept", "-p", '{"data":{"color":"red"}}'),
        ("label", "cm", "kept", "a=b"),
        ("delete", "cm", "kept"),
    ):
        space(*change, "--dry-run=server")
    assert shown(space, "cm", "kept") == before


# --- patches, labels, annotations


def test_every_kind_of_patch_changes_a_core_object(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=config_map("c", color="blue", size="1"))
    patch = ("patch", "cm", "c")
    space(*patch, "--type=merge", "-p", '{"data":{"size":null,"merge":"1"}}')
    space(*patch, "--type=strategic", "-p", '{"data":{"strategic":"1"}}')
    space(*patch, "-p", '{"metadata":{"finalizers":["example.com/a"]}}')
    space(*patch, "-p", '{"metadata":{"finalizers":["example.com/b"]}}')
    operations = [{"op": "test", "path": "/data/color", "value": "blue"}]
    operations += [{"op": "replace", "path": "/data/color", "value": "red"}]
    space(*patch, "--type=json", "-p", json.dumps(operations))
    found = space.json("get", "cm", "c")
    assert found["data"] == {"color": "red", "merge": "1", "strategic": "1"}
    assert sorted(found["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    error = space.refused(*patch, "--type=json", "-p", json.dumps(operations))
    assert "test" in error
    less = {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}
    space(*patch, "-p", json.dumps({"metadata": less}))


def test_a_kind_of_ours_is_patched_by_merge_and_json_and_refuses_the_strategic_way(
    space: Kubectl,
) -> None:
    space("create", "-f", "-", stdin=workload())
    patch = ("patch", "workload", "web")
    space(*patch, "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    path = "/spec/template/spec/runtime/sandbox/containers/0/image"
    space(*patch, "--type=json", "-p", f'[{{"op":"replace","path":"{path}","value":"web:3"}}]')
    found = space.json("get", "workload", "web")
    assert (found["metadata"]["labels"], image(found)) == ({"a": "b"}, "web:3")
    error = space.refused(*patch, "--type=strategic", "-p", '{"metadata":{"labels":{"c":"d"}}}')
    assert "application/merge-patch+json" in error


def test_the_status_is_patched_through_its_subresource_only(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload())
    patch = ("patch", "workload", "web", "--type=merge", "-p", '{"status":{"replicas":4}}')
    space(*patch)
    assert space("get", "workload", "web", "-o=jsonpath={.status.replicas}") == ""
    space(*patch, "--subresource=status")
    assert space("get", "workload", "web", "-o=jsonpath={.status.replicas}") == "4"
    shown_status = space.json("get", "workload", "web", "--subresource=status")
    assert shown_status["status"]["replicas"] == 4


def test_labels_and_annotations_are_set_changed_and_removed(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload())
    for verb, part in (("label", "labels"), ("annotate", "annotations")):
        space(verb, "workload", "web", "tier=gold", "team=a")
        assert "--overwrite" in space.refused(verb, "workload", "web", "tier=silver")
        space(verb, "workload", "web", "tier=silver", "--overwrite")
        space(verb, "workloads", "--all", "team-")
        found = space.json("get", "workload", "web")["metadata"][part]
        assert {k: v for k, v in found.items() if k != CHANGED_BY} == {"tier": "silver"}


def test_a_label_that_is_none_is_refused(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload())
    merge = '{"metadata":{"labels":{"a":"not valid"}}}'
    error = space.refused("patch", "workload", "web", "--type=merge", "-p", merge)
    assert "metadata.labels" in error


# --- create and replace


def test_create_refuses_what_is_there_and_replace_what_is_not(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload())
    assert "already exists" in space.refused("create", "-f", "-", stdin=workload())
    space("replace", "-f", "-", stdin=workload(image="web:2"))
    assert image(space.json("get", "workload", "web")) == "web:2"
    assert "not found" in space.refused("replace", "-f", "-", stdin=workload("absent"))
    before = space.json("get", "workload", "web")["metadata"]["uid"]
    space("replace", "--force", "-f", "-", stdin=workload(image="web:3"))
    after = space.json("get", "workload", "web")
    assert (image(after), after["metadata"]["uid"] != before) == ("web:3", True)


def test_a_replace_that_is_behind_conflicts(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=config_map("c"))
    stale = json.dumps(space.json("get", "cm", "c"))
    space("label", "cm", "c", "a=b")
    error = space.refused("replace", "-f", "-", stdin=stale)
    assert "the object has been modified" in error


def test_names_are_made_up_on_request(space: Kubectl) -> None:
    manifest = json.loads(config_map("x"))
    manifest["metadata"] = {"generateName": "made-"}
    made = {space("create", "-f", "-", "-o=name", stdin=json.dumps(manifest)) for _ in range(3)}
    assert len(made) == 3
    assert all(name.startswith("configmap/made-") for name in made)
