"""Invalid input on the real engine: one condition names the cause, and nothing is left."""

from __future__ import annotations

import pytest

from datum_compute.api.compute.instance import Container
from datum_compute.api.conditions import Reason
from datum_compute.drivers.driver import DataFile, MachineData
from testkit.processes.container_cell import ID, Cell
from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real
from testkit.processes.local_platform import eventually

pytestmark = pytest.mark.timeout(240)


async def test_a_port_conflict_of_two_containers_names_the_second(
    cell: Cell, engine: TestEngine
) -> None:
    serve = ["sh", "-c", "sleep $0; exec httpd -f -p 8080 -h /www"]
    image = engine.image("web:1")
    first = Container(name="first", image=image, command=[*serve, "0"])
    second = Container(name="second", image=image, command=[*serve, "2"])
    data = MachineData(files={"files": (DataFile("note", b"x"),)})
    await cell.driver.start(ID, cell.of_containers(first, second), data)
    state = await cell.wait_for_state(lambda s: s.reason == Reason.INSTANCE_CRASHING)
    assert state.message == "container second exited with code 1"
    assert "Address" in state.last_lines[-1], "in use"
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    assert cell.containers() == []
    assert list((cell.state / "data").rglob("note")) == []


MISSING_KEY = """
apiVersion: v1
kind: Secret
metadata: {name: settings}
data: {present: eA==}
---
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata: {name: web}
spec:
  template:
    spec:
      runtime:
        sandbox:
          containers:
            - name: app
              image: IMAGE
              env:
                - name: PASSWORD
                  valueFrom: {secretKeyRef: {name: settings, key: absent}}
  placements:
    - {name: default, cityCodes: [DFW], scaleSettings: {minReplicas: 1}}
"""


def test_a_missing_key_of_a_secret_is_named_and_no_container_is_created(
    real: Real, engine: TestEngine
) -> None:
    secret, workload = MISSING_KEY.replace("IMAGE", engine.image("web:1")).split("---")
    real.kubectl("project/default", "apply", "-f", "-", stdin=secret)
    file = real.state / "web.yaml"
    file.write_text(workload)
    refused = real.run("deploy", "-f", str(file), "--yes")
    assert refused.returncode == 3
    assert "key 'absent' is missing" in refused.stderr
    real.run("deploy", "-f", str(file), "--yes", "--no-wait", "--skip-checks")

    def is_named() -> bool:
        found = real.instances("web")
        return bool(found) and "absent" in found[0]["message"]

    eventually(is_named, "the key is named")
    assert engine.podman("ps", "--all", "--quiet").split() == []
