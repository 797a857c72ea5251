"""A workload that references a Secret and a ConfigMap, with kubectl only."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

PASSWORD = "correct-horse-battery"
SHOP = """
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata: {name: shop}
spec:
  template:
    spec:
      runtime:
        sandbox:
          containers:
            - name: app
              image: ghcr.io/example/shop:1
              env:
                - name: PASSWORD
                  valueFrom: {secretKeyRef: {name: db, key: password}}
              volumeAttachments:
                - {name: settings, mountPath: /etc/shop}
      volumes:
        - name: settings
          configMap: {name: shop, items: [{key: shop.conf, path: conf/shop.conf}]}
  placements:
    - {name: default, cityCodes: [DFW], scaleSettings: {minReplicas: 1}}
"""


def copies(platform: LocalPlatform) -> list[str]:
    return [
        f"{context} {o['kind']}/{o['metadata']['name']}"
        for context in ("hub", "cell/dfw")
        for o in platform.objects(context, "configmaps,secrets")
        if o["metadata"]["name"] in ("shop", "db")
    ]


def available(project: Kubectl) -> dict[str, Any]:
    conditions = project.json("get", "workload", "shop").get("status", {}).get("conditions", [])
    found = [c for c in conditions if c["type"] == "Available"]
    return found[0] if found else {"reason": "", "message": ""}


def test_a_workload_waits_for_its_data_and_its_copies_are_deleted_with_it(
    platform: LocalPlatform,
) -> None:
    project = Kubectl(platform.kubeconfig, "project/default")
    project("apply", "-f", "-", stdin=SHOP)
    eventually(
        lambda: available(project)["reason"] == "SourceNotFound", "it reports the missing source"
    )
    assert "Secret/db does not exist" in available(project)["message"]

    project("create", "configmap", "shop", "--from-literal=shop.conf=x=1")
    project("create", "secret", "generic", "db", f"--from-literal=password={PASSWORD}")
    project("wait", "--for=condition=Available", "workload/shop", "--timeout=30s")
    eventually(
        lambda: (
            sorted(
                pin["name"]
                for i in project.json("get", "instances")["items"]
                for pin in i["status"].get("referencedData", ())
            )
            == ["db", "shop"]
        ),
        "the instances report their data",
    )
    assert len(copies(platform)) == 4

    objects = json.dumps(
        [
            platform.objects(context, "workloads,workloaddeployments,instances,servers,events")
            for context in ("project/default", "hub", "cell/dfw")
        ]
    )
    logs = [(platform.state / name).read_text() for name in ("server.log", "audit.log")]
    for secret in (PASSWORD, base64.b64encode(PASSWORD.encode()).decode()):
        assert secret not in objects
        assert not any(secret in log for log in logs)

    project("delete", "workload", "shop", "--timeout=30s")
    eventually(lambda: not copies(platform), "the copies are deleted")
