"""Bad input: an error of one line, the right exit code, and no change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.runner import CliRunner
from tests.cli.world import World, healthy, write_kubeconfig

MANIFEST = """\
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata:
  name: web
spec:
  template:
    spec:
      runtime:
        sandbox:
          containers:
            - name: app
              image: web:1
  placements:
    - name: default
      cityCodes: [DFW]
      scaleSettings:
        minReplicas: 1
"""
FILES = {
    "tabs.yaml": "a:\n\t- b",
    "empty.yaml": "",
    "list.yaml": "- 1\n",
    "twice.yaml": MANIFEST + "---\n" + MANIFEST,
    "double.yaml": MANIFEST.replace("  name: web", "  name: web\n  name: api"),
    "kind.yaml": MANIFEST.replace("kind: Workload", "kind: Deployment"),
    "slip.yaml": MANIFEST.replace("cityCodes", "cityCode"),
    "type.yaml": MANIFEST.replace("minReplicas: 1", "minReplicas: many"),
    "city.yaml": MANIFEST.replace("DFW", "XYZ"),
    "image.yaml": MANIFEST.replace("web:1", "'not an image'"),
    "name.yaml": MANIFEST.replace("name: web", "name: Web_1"),
    "namespace.yaml": MANIFEST.replace("  name: web", "  name: web\n  namespace: other"),
    "binary.yaml": "\x00\x01",
    "anchor.yaml": "a: &a [*a]",
}

MATRIX: list[tuple[tuple[str, ...], int, str]] = [
    (("deplyo",), 2, "Did you mean 'deploy'?"),
    (("deploy", "web", "--imgae=x"), 2, "Did you mean '--image'?"),
    (("deploy", "web", "-image=x"), 2, "no such option '-image'. Did you mean '--image'?"),
    (("deploy", "web", "--replicas=2"), 2, "Did you mean '--min'?"),
    (("status", "web", "--json"), 2, "Did you mean '--output'?"),
    (("status", "web", "--frobnicate"), 2, "no such option '--frobnicate'\n"),
    (("instances", "describe", "workload/web"), 2, "is not the name of an instance"),
    (("status", "instance/web"), 2, "is not the name of a workload"),
    (("status", "workload/"), 2, "is not the name of a workload"),
    (("deploy", "web", "--image=x", "--city=DFX"), 2, "did you mean DFW?"),
    (("deploy", "web", "--image=not an image", "--city=DFW"), 2, "image"),
    (("deploy", "web", "--image=x", "--city=DFW", "--min=0"), 2, "--min"),
    (("deploy", "web", "--image=x", "--city=DFW", "--port=99999"), 2, "--port"),
    (
        ("deploy", "web", "--image=x", "--city=DFW", "--instance-type=d1-standard"),
        2,
        "no such inst",
    ),
    (("deploy", "web", "--image=x", "--city=DFW", "--env=A"), 2, "is not NAME=VALUE"),
    (("deploy", "web", "--image=x", "--city=DFW", "--timeout=soon"), 2, "not a duration"),
    (("deploy", "web", "--image=x", "--city=DFW", "-o", "yaml"), 2, "'yaml' is not one of"),
    (("deploy", "web", "--image=x", "--city=DFW", "--deploy-key="), 2, "--deploy-key"),
    (("deploy", "-web-", "--image=x", "--city=DFW"), 2, "no such option"),
    (("deploy", "Web", "--image=x", "--city=DFW"), 2, "is not a valid name"),
    (("deploy", "web"), 2, "needs --image and --city"),
    (("deploy", "web", "--plan=x", "--image=y"), 2, "cannot be combined with --plan"),
    (("deploy", "-f", "x", "--plan=y"), 2, "give one of them"),
    (("deploy", "--plan=gone.json"), 2, "cannot be read"),
    (("deploy", "-f", "gone.yaml"), 2, "cannot be read"),
    (("status", "wbe"), 3, "there is no workload 'wbe'"),
    (("scale", "wbe", "--min=2"), 3, "there is no workload"),
    (("scale", "web"), 2, "missing option '--min'"),
    (("restart", "wbe"), 3, "there is no workload"),
    (("destroy", "wbe", "-y"), 3, "there is no workload"),
    (("destroy", "wbe", "--confirm=web"), 3, "there is no workload"),
    (("rollout", "undo", "wbe"), 3, "there is no workload"),
    (("rollout", "histroy", "web"), 2, "Did you mean 'datumctl compute rollout history web'?"),
    (("rollout", "undo", "web", "--only=images"), 2, "'images' is not one of"),
    (("workloads", "destroy", "web"), 2, "Did you mean 'datumctl compute destroy web'?"),
    (("instances", "describe", "nothing"), 3, "there is no instance"),
    (("instances", "--workload=wbe"), 3, "there is no workload"),
    (("workloads", "--health=fine"), 2, "--health"),
    (("explain", "wbe"), 3, "there is no workload"),
    (("events", "wbe"), 3, "there is no workload"),
    (("quota", "-o", "xml"), 2, "none of table"),
    (("cities", "-o", "jsonpath=..x"), 2, "not supported"),
    (("access", "grant"), 2, "no command 'grant'"),
    (("diff",), 2, "missing option '-f'"),
    (("export", "wbe"), 3, "there is no workload"),
    (("init", "Web_1"), 2, "is not a valid name"),
    (("open", "wbe"), 3, "there is no workload"),
    (("completion", "tcsh"), 2, "'tcsh' is not one of"),
    (("status", "web", "--context=a", "--project=b"), 2, "select a plane"),
    *((("deploy", "-f", name), 2, name) for name in FILES if name != "city.yaml"),
    (("deploy", "-f", "city.yaml"), 2, "no such location; there are: AMS, DFW, IAD, ORD"),
]


@pytest.fixture(scope="module")
def world() -> World:
    return World(player=healthy)


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    world.writes.clear()
    return CliRunner(home=tmp_path, open_transport=world.open)


@pytest.mark.parametrize(
    ("words", "code", "message"), MATRIX, ids=[" ".join(words) for words, _, _ in MATRIX]
)
def test_bad_input_is_reported_and_changes_nothing(
    cli: CliRunner, world: World, words: tuple[str, ...], code: int, message: str
) -> None:
    assert cli.run(*words) == code, cli.err
    first = cli.err.splitlines()[0]
    assert first.startswith("error: ")
    assert message in cli.err
    assert "Traceback" not in cli.err
    assert cli.out == ""
    assert world.writes == []
    if "-o" not in words:
        assert cli.run(*words, "-o", "json") in (code, 2)
        assert json.loads(cli.err)["error"]["message"]
