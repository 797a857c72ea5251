"""``kubectl edit`` with a script as the editor, and ``kubectl diff``."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import config_map, image, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]


def with_editor(kubectl: Kubectl, folder: Path, *changes: str) -> Kubectl:
    """Return a kubectl whose editor applies one sed script each time it is opened."""
    for number, change in enumerate(changes):
        (folder / f"change-{number}").write_text(change)
    editor = folder / "editor"
    editor.write_text(
        "#!/bin/sh\n"
        f'count=$(cat "{folder}/count" 2>/dev/null || echo 0)\n'
        f'cp "$1" "{folder}/opened-$count"\n'
        f'test -f "{folder}/change-$count" && sed -i -f "{folder}/change-$count" "$1"\n'
        f'echo $((count + 1)) > "{folder}/count"\n'
    )
    editor.chmod(0o755)
    return kubectl.with_flags(KUBE_EDITOR=str(editor), TMPDIR=str(folder))


def test_an_edit_changes_the_object(in_namespace: Kubectl, tmp_path: Path) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    editing = with_editor(in_namespace, tmp_path, "s/image: web:1/image: web:2/")
    assert "edited" in editing("edit", "workload", "web")
    assert image(in_namespace.json("get", "workload", "web")) == "web:2"


def test_an_edit_without_a_change_writes_nothing(in_namespace: Kubectl, tmp_path: Path) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    before = in_namespace.json("get", "workload", "web")
    done = with_editor(in_namespace, tmp_path).run("edit", "workload", "web")
    assert "no changes made" in done.stdout + done.stderr
    assert in_namespace.json("get", "workload", "web") == before


def test_a_rejected_edit_is_reopened_with_the_reason(in_namespace: Kubectl, tmp_path: Path) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    changes = ("s/minReplicas: 1/minReplicas: -1/", "s/minReplicas: -1/minReplicas: 3/")
    assert "edited" in with_editor(in_namespace, tmp_path, *changes)("edit", "workload", "web")
    shown_again = (tmp_path / "opened-1").read_text()
    reason = shown_again.partition("apiVersion:")[0]
    assert "spec.placements[0].scaleSettings.minReplicas" in reason
    placements = in_namespace.json("get", "workload", "web")["spec"]["placements"]
    assert placements[0]["scaleSettings"]["minReplicas"] == 3


def test_an_edit_that_stays_invalid_is_saved_to_a_file(
    in_namespace: Kubectl, tmp_path: Path
) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    editing = with_editor(in_namespace, tmp_path, "s/minReplicas: 1/minReplicas: -1/")
    done = editing.run("edit", "workload", "web")
    assert done.returncode != 0
    assert "is invalid" in done.stderr
    (saved,) = [p for p in tmp_path.glob("*-edit-*.yaml") if str(p) in done.stderr]
    reason, _, text = saved.read_text().partition("apiVersion:")
    assert "spec.placements[0].scaleSettings.minReplicas" in reason
    assert "minReplicas: -1" in text
    assert in_namespace("get", "wl", "web", "-o=jsonpath={.metadata.generation}") == "1"


def test_a_core_object_can_be_edited(in_namespace: Kubectl, tmp_path: Path) -> None:
    in_namespace("create", "-f", "-", stdin=config_map("c", color="blue"))
    with_editor(in_namespace, tmp_path, "s/color: blue/color: red/")("edit", "configmap", "c")
    assert in_namespace("get", "cm", "c", "-o=jsonpath={.data.color}") == "red"


@pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client", "server"])
def test_diff_reports_a_difference_by_exit_code_and_changes_nothing(
    in_namespace: Kubectl, way: tuple[str, ...]
) -> None:
    diff = ("diff", *way, "-f", "-")
    new = in_namespace.run(*diff, stdin=workload())
    assert (new.returncode, "+kind: Workload" in new.stdout) == (1, True)
    assert in_namespace("get", "workloads", "-o", "name") == ""
    in_namespace("apply", *way, "-f", "-", stdin=workload())
    before = in_namespace.json("get", "workload", "web")
    assert in_namespace.run(*diff, stdin=workload()).returncode == 0
    changed = in_namespace.run(*diff, stdin=workload(image="web:2"))
    assert changed.returncode == 1
    lines = [line.split() for line in changed.stdout.splitlines() if "image:" in line]
    assert [line[0][0] + line[-1] for line in lines] == ["-web:1", "+web:2"]
    wrong = in_namespace.run(*diff, stdin=workload().replace('"DFW"', '""'))
    assert wrong.returncode > 1
    assert "cityCodes" in wrong.stderr
    assert in_namespace.json("get", "workload", "web") == before
