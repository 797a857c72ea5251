"""Every way in which kubectl writes, over the real socket."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.platform import LocalPlatform, kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

PROJECT = "project/default"
MANIFEST = """
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata:
  name: web
  labels: {{team: {team}}}
spec:
  template:
    spec:
      runtime:
        sandbox:
          containers:
          - name: app
            image: {image}
            env:
            - {{name: MODE, value: fast}}
  placements:
  - name: main
    cityCodes: [DFW]
    scaleSettings: {{minReplicas: 1}}
"""


def manifest(*, image: str = "web:1", team: str = "a") -> str:
    return MANIFEST.format(image=image, team=team)


def shown(platform: LocalPlatform, kind: str, name: str) -> dict[str, Any]:
    text = platform.kubectl(PROJECT, "get", kind, name, "-o", "json", "--show-managed-fields")
    found: dict[str, Any] = json.loads(text)
    return found


def managers(obj: dict[str, Any]) -> dict[tuple[str, str], Any]:
    entries = obj["metadata"]["managedFields"]
    return {
        (e["manager"], e["operation"]): e["fieldsV1"] for e in entries if not e.get("subresource")
    }


def applied(obj: dict[str, Any]) -> list[Any]:
    return [e for e in obj["metadata"]["managedFields"] if e["operation"] == "Apply"]


def image(obj: dict[str, Any]) -> str:
    containers = obj["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    return str(containers[0]["image"])


def refused(platform: LocalPlatform, *arguments: str, stdin: str) -> str:
    done = subprocess.run(
        [kubectl(), "--kubeconfig", str(platform.kubeconfig), "--context", PROJECT, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_namespaces_are_created_labelled_patched_and_deleted(platform: LocalPlatform) -> None:
    platform.kubectl(PROJECT, "create", "namespace", "team-a")
    platform.kubectl(PROJECT, "label", "namespace", "team-a", "tier=gold")
    patch = '{"metadata":{"finalizers":["example.com/held"],"annotations":{"note":"kept"}}}'
    for kind in ("strategic", "merge"):
        platform.kubectl(PROJECT, "patch", "namespace", "team-a", "--type", kind, "-p", patch)
    more = '{"metadata":{"finalizers":["example.com/more"]}}'
    platform.kubectl(PROJECT, "patch", "namespace", "team-a", "-p", more)
    metadata = shown(platform, "namespace", "team-a")["metadata"]
    assert metadata["labels"]["tier"] == "gold"
    assert metadata["annotations"] == {"note": "kept"}
    assert sorted(metadata["finalizers"]) == ["example.com/held", "example.com/more"]
    gone = {"$deleteFromPrimitiveList/finalizers": ["example.com/held", "example.com/more"]}
    less = json.dumps({"metadata": gone})
    platform.kubectl(PROJECT, "patch", "namespace", "team-a", "-p", less)
    platform.kubectl(PROJECT, "delete", "namespace", "team-a")


def test_server_side_apply_creates_changes_and_gives_up_fields(platform: LocalPlatform) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in platform.kubectl(PROJECT, *apply, stdin=manifest())
    before = shown(platform, "workload", "web")
    platform.kubectl(PROJECT, *apply, stdin=manifest())
    again = shown(platform, "workload", "web")
    assert applied(again) == applied(before)
    platform.kubectl(PROJECT, *apply, stdin=manifest(image="web:2"))
    without = manifest(image="web:2").replace("  labels: {team: a}\n", "")
    platform.kubectl(PROJECT, *apply, stdin=without)
    after = shown(platform, "workload", "web")
    assert image(after) == "web:2"
    assert "labels" not in after["metadata"]


def test_server_side_apply_takes_over_from_client_side_apply(platform: LocalPlatform) -> None:
    platform.kubectl(PROJECT, "apply", "-f", "-", stdin=manifest())
    assert ("kubectl-client-side-apply", "Update") in managers(shown(platform, "workload", "web"))
    platform.kubectl(PROJECT, "apply", "--server-side", "-f", "-", stdin=manifest(image="web:2"))
    after = shown(platform, "workload", "web")
    assert image(after) == "web:2"
    assert ("kubectl", "Apply") in managers(after)
    assert ("kubectl-client-side-apply", "Update") not in managers(after)
    without = manifest(image="web:2").replace("  labels: {team: a}\n", "")
    platform.kubectl(PROJECT, "apply", "--server-side", "-f", "-", stdin=without)
    assert "labels" not in shown(platform, "workload", "web")["metadata"]


def test_a_field_of_another_manager_is_a_conflict_until_it_is_forced(
    platform: LocalPlatform,
) -> None:
    first = ("apply", "--server-side", "--field-manager", "first", "-f", "-")
    second = ("apply", "--server-side", "--field-manager", "second", "-f", "-")
    platform.kubectl(PROJECT, *first, stdin=manifest())
    error = refused(platform, *second, stdin=manifest(image="web:2"))
    assert "Apply failed with 1 conflict" in error
    assert '"first"' in error
    assert ".image" in error
    assert image(shown(platform, "workload", "web")) == "web:1"
    platform.kubectl(PROJECT, *second, "--force-conflicts", stdin=manifest(image="web:2"))
    after = shown(platform, "workload", "web")
    assert image(after) == "web:2"
    assert {("first", "Apply"), ("second", "Apply")} <= set(managers(after))
    error = refused(platform, *first, stdin=manifest(image="web:1"))
    assert '"second"' in error


def test_a_dry_run_and_a_diff_change_nothing(platform: LocalPlatform) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    platform.kubectl(PROJECT, *apply, "--dry-run=server", stdin=manifest())
    assert platform.kubectl(PROJECT, "get", "workloads", "-o", "name") == ""
    platform.kubectl(PROJECT, *apply, stdin=manifest())
    before = shown(platform, "workload", "web")
    changed = manifest(image="web:2")
    difference = refused(platform, "diff", "--server-side", "-f", "-", stdin=changed)
    assert not difference
    assert shown(platform, "workload", "web")["spec"] == before["spec"]


def test_other_writes_are_tracked_under_their_own_names(platform: LocalPlatform) -> None:
    platform.kubectl(PROJECT, "create", "-f", "-", stdin=manifest())
    platform.kubectl(PROJECT, "label", "workload", "web", "extra=1")
    platform.kubectl(PROJECT, "annotate", "workload", "web", "why=because")
    found = managers(shown(platform, "workload", "web"))
    assert ("kubectl-create", "Update") in found
    assert found["kubectl-label", "Update"] == {"f:metadata": {"f:labels": {"f:extra": {}}}}
    assert "f:annotations" in found["kubectl-annotate", "Update"]["f:metadata"]
