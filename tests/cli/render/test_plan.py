"""The plan of a new workload contains all fields of its manifest, and no secret."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner

pytestmark = pytest.mark.usefixtures("local_platform")

MANIFEST = """
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata: {name: web, labels: {team: shop}}
spec:
  placements:
    - {name: main, cityCodes: [DFW], scaleSettings: {minReplicas: 2, progressDeadlineSeconds: 90}}
  template:
    spec:
      scaleToZero: {idleAfter: 30s, mode: stop}
      runtime:
        resources: {instanceType: datumcloud/d1-standard-2}
        sandbox:
          containers:
            - name: app
              image: web:1
              command: [/bin/server]
              args: [--verbose, --port=80]
              ports: [{name: http, port: 80}]
              env: [{name: PASSWORD, value: hush}]
              readinessProbe: {httpGet: {path: /healthz, port: 80}}
      networkInterfaces: [{network: {name: default}}]
"""


def test_all_set_fields_are_shown(cli: CliRunner) -> None:
    (cli.home / "web.yaml").write_text(MANIFEST)
    assert cli.run("deploy", "-f", "web.yaml", "--dry-run") == 0, cli.err
    lines = {line.strip(" +") for line in (cli.err + cli.out).splitlines()}
    assert {
        "container app: web:1",
        "ports: 80",
        "env: PASSWORD",
        "placement main: at least 2 in each of DFW",
        "metadata.labels.team: shop",
        "placements[main].scaleSettings.progressDeadlineSeconds: 90",
        "scaleToZero.idleAfter: 30s",
        "scaleToZero.mode: stop",
        "runtime.resources.instanceType: datumcloud/d1-standard-2",
        "containers[app].command: /bin/server",
        "containers[app].args: --verbose --port=80",
        "containers[app].readinessProbe.httpGet.path: /healthz",
        "networkInterfaces[0].network.name: default",
    } <= lines
    assert "hush" not in cli.err + cli.out
    assert "periodSeconds" not in cli.err + cli.out, "defaults are not shown"


def test_only_set_fields_are_shown(cli: CliRunner) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "--dry-run") == 0
    assert cli.err.splitlines()[:4] == [
        "New workload web in project/default:",
        "  container app: web:1",
        "  placement default: at least 1 in each of DFW",
        "  Creates 1 instance",
    ]
