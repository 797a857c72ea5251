"""The complete platform on a real engine, controlled with the command line."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, page, up
from testkit.processes.local_platform import eventually
from tests.containers.load import Load

pytestmark = pytest.mark.timeout(240)


def test_two_cities_run_a_workload_and_a_second_version(real: Real, engine: TestEngine) -> None:
    cities = ("--city=DFW", "--city=IAD", "--port=8080")
    done = real.deploy("web", f"--image={engine.image('web:1')}", *cities)
    assert done.returncode == 0, done.stdout + done.stderr
    found = real.ready("web")
    assert [page(instance["address"]) for instance in found] == ["v1", "v1"]
    done = real.deploy("web", f"--image={engine.image('web:2')}", *cities)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [page(instance["address"]) for instance in real.ready("web")] == ["v2", "v2"]
    assert len(engine.podman("ps", "--all", "--quiet").split()) == 2


def test_a_bad_image_is_reported_and_a_good_one_fixes_the_workload(
    real: Real, engine: TestEngine
) -> None:
    bad = (f"--image={engine.image('web:none')}", "--city=DFW")
    refused = real.deploy("web", *bad)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "web:none: not found: manifest unknown" in refused.stderr
    assert real.instances() == [], "nothing was deployed"
    real.deploy("web", *bad, "--no-wait", "--skip-checks")

    def is_reported() -> bool:
        found = real.instances("web")
        return bool(found) and found[0]["reason"] == "ImageUnavailable"

    eventually(is_reported, "the image is reported as unavailable")
    assert "manifest unknown" in real.instances("web")[0]["message"]
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    (instance,) = real.ready("web")
    assert page(instance["address"]) == "v1"


def test_instances_serve_while_the_platform_is_down_and_are_adopted(
    real: Real, engine: TestEngine
) -> None:
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW", "--city=IAD")
    assert done.returncode == 0, done.stdout + done.stderr
    before = {i["name"]: i["uid"] for i in real.ready("web")}
    containers = sorted(engine.podman("ps", "--quiet", "--no-trunc").split())
    addresses = [instance["address"] for instance in real.instances("web")]
    real.kill()
    assert [page(each) for each in addresses] == ["v1", "v1"]
    up(real, engine)
    eventually(lambda: len(real.ready("web")) == 2, "both are ready")
    assert {i["name"]: i["uid"] for i in real.instances("web")} == before
    assert sorted(engine.podman("ps", "--quiet", "--no-trunc").split()) == containers


def test_instances_serve_while_the_engine_is_down(real: Real, engine: TestEngine) -> None:
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    (instance,) = real.ready("web")
    containers = engine.podman("ps", "--quiet", "--no-trunc").split()
    engine.stop_engine()
    assert page(instance["address"]) == "v1"
    engine.start_engine()
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW", "--city=IAD")
    assert done.returncode == 0, done.stdout + done.stderr
    assert containers[0] in engine.podman("ps", "--quiet", "--no-trunc").split()


def test_a_container_removed_by_hand_is_replaced(real: Real, engine: TestEngine) -> None:
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    (first,) = engine.podman("ps", "--quiet", "--no-trunc").split()
    engine.podman("rm", "--force", "--time", "0", first)
    eventually(lambda: engine.podman("ps", "--quiet").split() != [], "another one runs")
    eventually(lambda: len(real.ready("web")) == 1, "it is ready")
    (instance,) = real.ready("web")
    assert page(instance["address"]) == "v1"


MANIFEST = """
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata: {{name: web}}
spec:
  template:
    spec:
      runtime:
        sandbox:
          terminationGracePeriodSeconds: 1
          containers:
            - name: app
              image: {image}
              ports: [{{name: http, port: 8080}}]
              readinessProbe: {{httpGet: {{port: http}}, periodSeconds: 1}}
  placements:
    - name: default
      cityCodes: [DFW]
      scaleSettings: {{minReplicas: 2}}
"""


def test_a_second_version_under_load_loses_no_request(
    real: Real, engine: TestEngine, tmp_path: Path
) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(MANIFEST.format(image=engine.image("web:1")))
    done = real.run("deploy", "-f", str(file), "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    (url,) = json.loads(real.run("status", "web", "-o", "json").stdout)["endpoints"]
    with Load(url["url"]) as load:
        eventually(lambda: len(load.answers) > 50, "requests are answered")
        file.write_text(MANIFEST.format(image=engine.image("web:2")))
        done = real.run("deploy", "-f", str(file), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(lambda: load.answers[-20:] == ["v2"] * 20, "only the new version answers")
    assert load.failures == []
    assert set(load.answers) == {"v1", "v2"}


def test_logs_of_all_cities_are_merged_and_outlive_their_instances(
    real: Real, engine: TestEngine
) -> None:
    engine.publish("talk:1", "v1", 'CMD ["sh", "-c", "echo first $VERSION; sleep 1000"]')
    engine.publish("talk:2", "v2", 'CMD ["sh", "-c", "echo first $VERSION; sleep 1000"]')
    cities = ("--city=DFW", "--city=IAD")
    done = real.deploy("talk", f"--image={engine.image('talk:1')}", *cities)
    assert done.returncode == 0, done.stdout + done.stderr
    found = real.run("logs", "talk")
    assert found.returncode == 0, found.stderr
    assert (
        sorted(line.partition(" | ")[2] for line in found.stdout.splitlines()) == ["first v1"] * 2
    )
    (dfw,) = [i["name"] for i in real.instances("talk") if i["city"] == "DFW"]
    assert real.run("logs", "talk", "--city=dfw").stdout == "first v1\n"
    done = real.deploy("talk", f"--image={engine.image('talk:2')}", *cities)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = real.run("logs", "talk", f"--instance={dfw}").stdout.splitlines()
    assert lines == ["first v1", "first v2"], "the previous instance is included"
    assert real.run("logs", "talk", f"--instance={dfw}", "--search=v2").stdout == "first v2\n"
    assert real.run("logs", "talk", "--instance=missing").stdout == ""


def test_logs_of_a_deleted_workload_are_kept_and_not_mixed_with_a_new_one_of_the_name(
    real: Real, engine: TestEngine
) -> None:
    engine.publish("kept:1", "v1", 'CMD ["sh", "-c", "echo first $VERSION; sleep 1000"]')
    engine.publish("kept:2", "v2", 'CMD ["sh", "-c", "echo first $VERSION; sleep 1000"]')
    done = real.deploy("kept", f"--image={engine.image('kept:1')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    done = real.run("destroy", "kept", "--confirm=kept")
    assert done.returncode == 0, done.stdout + done.stderr
    found = real.run("logs", "kept")
    assert (found.returncode, found.stdout) == (0, "first v1\n"), found.stderr
    assert "is deleted" in found.stderr
    done = real.deploy("kept", f"--image={engine.image('kept:2')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    assert real.run("logs", "kept").stdout == "first v2\n"


def test_logs_require_permission(real: Real, engine: TestEngine) -> None:
    done = real.deploy("web", f"--image={engine.image('web:1')}", "--city=DFW")
    assert done.returncode == 0, done.stdout + done.stderr
    config = yaml.safe_load(real.kubeconfig.read_text())
    (cluster,) = [c["cluster"] for c in config["clusters"] if c["name"] == "project/default"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trusted = ssl.create_default_context(cadata=authority)
    name = real.instances("web")[0]["name"]
    path = f"/gateway/v1alpha/namespaces/default/instances/{name}/log"
    (user,) = [u["user"] for u in config["users"] if u["name"] == "project/default"]
    for headers, code in (
        ({}, 401),
        ({"authorization": "Bearer nonsense"}, 401),
        ({"authorization": f"Bearer {user['token']}", "impersonate-user": "eve"}, 403),
    ):
        request = urllib.request.Request(cluster["server"] + path, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, context=trusted, timeout=10)
        assert refused.value.code == code
        refused.value.close()


def test_a_stopped_instance_runs_no_command_and_leaves_a_crash_report(
    real: Real, engine: TestEngine
) -> None:
    engine.publish("ends:1", "v1", 'CMD ["sh", "-c", "exit 9"]')
    real.deploy("ends", f"--image={engine.image('ends:1')}", "--city=DFW", "--no-wait")

    def is_down() -> bool:
        found = real.instances("ends")
        return bool(found) and found[0]["reason"] == "InstanceCrashing"

    eventually(is_down, "the process has exited")
    done = real.run("exec", real.instances("ends")[0]["name"], "--", "ls")
    assert done.returncode == 4, done.stderr
    assert "container app does not run: container app exited with code 9" in done.stderr
    shown = real.run("instances", "describe", real.instances("ends")[0]["name"]).stdout
    assert "container app exited with code 9" in shown
    explained = real.run("explain", "ends").stdout
    assert "Exit code:  9" in explained, explained
    name = real.instances("ends")[0]["name"]
    real.run("destroy", "ends", "--yes")
    eventually(lambda: real.instances() == [], "the instance is deleted")
    gone = real.run("instances", "describe", name)
    assert gone.returncode == 0, gone.stderr
    assert f"Instance {name} (project/default) is gone." in gone.stdout
    assert "container app exited with code 9" in gone.stdout
    assert json.loads(real.run("explain", name, "-o", "json").stdout)["status"] == "Gone"
