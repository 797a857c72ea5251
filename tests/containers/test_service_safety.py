"""Deploys and rollbacks of a service on the real engine, with requests to its published ports.

A working release loses no request, with one and with two instances in a city. A release that
never serves is never reported as ready and does not take the service down where a second instance
can serve.
"""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real
from testkit.processes.local_platform import eventually
from tests.containers.load import Load

pytestmark = pytest.mark.timeout(240)

CITIES = ("--city=DFW", "--city=IAD")
# An HTTP server that stops on SIGTERM as soon as its requests have been answered.
WELL_BEHAVED = 'CMD ["httpd", "-f", "-p", "8080", "-h", "/www"]'
NEVER_LISTENS = 'CMD ["sh", "-c", "sleep 3; exit 1"]'
# Longer than the client of a request waits.
STARTS_SLOWLY = 'CMD ["sh", "-c", "sleep 20; exec httpd -f -p 8080 -h /www"]'
EXITS_AT_ONCE = 'CMD ["sh", "-c", "exit 1"]'


def endpoint_urls(real: Real, workload: str) -> list[str]:
    shown = json.loads(real.run("status", workload, "-o", "json").stdout)
    return [endpoint["url"] for endpoint in shown["endpoints"]]


def crashing_cities(real: Real, workload: str) -> set[str]:
    crashing = (i for i in real.instances(workload) if i["reason"] == "InstanceCrashing")
    return {instance["city"] for instance in crashing}


@pytest.mark.parametrize("replicas", [1, 2])
def test_deploy_and_rollback_of_a_working_release_lose_no_request(
    real: Real, engine: TestEngine, replicas: int
) -> None:
    scale = (f"--min={replicas}", "--port=8080", *CITIES)
    done = real.deploy("web", f"--image={engine.image('web:1')}", *scale)
    assert done.returncode == 0, done.stdout + done.stderr
    urls = endpoint_urls(real, "web")
    assert len(urls) == 2, "one published port in each city"
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(url)) for url in urls]
        eventually(lambda: all(len(load.answers) > 50 for load in loads), "requests are answered")
        done = real.deploy("web", f"--image={engine.image('web:2')}")
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(
            lambda: all(load.last(20) == {"v2"} for load in loads), "only the new version answers"
        )
        done = real.run("rollout", "undo", "web")
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(
            lambda: all(load.last(20) == {"v1"} for load in loads), "the old version is back"
        )
    for load in loads:
        assert load.failures == []
        assert set(load.answers) == {"v1", "v2"}


def test_one_instance_in_each_city_of_a_program_that_starts_slowly_loses_no_request(
    real: Real, engine: TestEngine
) -> None:
    """Without a surge instance, connections would wait for longer than their client does."""
    for version in ("v1", "v2"):
        engine.publish(f"slow:{version}", version, STARTS_SLOWLY)
    scale = ("--min=1", "--port=8080", *CITIES)
    done = real.deploy("slow", f"--image={engine.image('slow:v1')}", *scale)
    assert done.returncode == 0, done.stdout + done.stderr
    before = {i["name"] for i in real.ready("slow")}
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(url)) for url in endpoint_urls(real, "slow")]
        eventually(lambda: all(len(load.answers) > 50 for load in loads), "requests are answered")
        done = real.deploy("slow", f"--image={engine.image('slow:v2')}", "--no-wait")
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(
            lambda: json.loads(real.run("status", "slow", "-o", "json").stdout)["rolloutDone"],
            "the rollout is complete",
            within_s=180,
        )
        eventually(
            lambda: all(load.last(20) == {"v2"} for load in loads), "only the new version answers"
        )
    for load in loads:
        assert load.failures == []
        assert set(load.answers) == {"v1", "v2"}
    assert {i["name"] for i in real.ready("slow")} == before, "no surge instance is left"


@pytest.mark.parametrize(
    ("name", "command"), [("mute:1", NEVER_LISTENS), ("exits:1", EXITS_AT_ONCE)]
)
def test_a_release_that_never_serves_is_not_ready_and_the_service_stays(
    real: Real, engine: TestEngine, name: str, command: str
) -> None:
    engine.publish(name, "bad", command)
    scale = ("--min=2", "--port=8080", *CITIES)
    done = real.deploy("shop", f"--image={engine.image('web:1')}", *scale)
    assert done.returncode == 0, done.stdout + done.stderr
    serving = {i["name"] for i in real.ready("shop")}
    replaced_first = {
        i["name"] for i in real.instances("shop") if i["city"] == "DFW" and i["name"].endswith("-1")
    }
    assert len(serving) == 4
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(url)) for url in endpoint_urls(real, "shop")]
        eventually(lambda: all(len(load.answers) > 20 for load in loads), "requests are answered")
        failed = real.deploy("shop", f"--image={engine.image(name)}", "--timeout=20s")
        assert failed.returncode != 0, failed.stdout + failed.stderr
        assert "is ready" not in failed.stdout
        eventually(
            lambda: crashing_cities(real, "shop") == {"DFW"},
            "the first replacement in the first city has exited",
            within_s=60,
        )
        still = {i["name"] for i in real.ready("shop")}
        assert still == serving - replaced_first, "the rollout stops after its first instance"
        undone = real.run("rollout", "undo", "shop")
        assert undone.returncode == 0, undone.stdout + undone.stderr
    assert {i["name"] for i in real.ready("shop")} == serving
    for load in loads:
        assert load.failures == []
        assert set(load.answers) == {"v1"}


def test_a_bad_release_stays_in_the_canary_city_and_is_rolled_back_without_a_lost_request(
    real: Real, engine: TestEngine
) -> None:
    engine.publish("broken:1", "bad", EXITS_AT_ONCE)
    scale = ("--min=1", "--port=8080", *CITIES)
    done = real.deploy("canary", f"--image={engine.image('web:1')}", *scale)
    assert done.returncode == 0, done.stdout + done.stderr
    policy = {"cityOrder": "CanaryCity", "canaryCity": "IAD", "onFailure": "Rollback"}
    deadline = "/spec/placements/0/scaleSettings/progressDeadlineSeconds"
    patch = [
        {"op": "add", "path": "/spec/rollout", "value": policy},
        {"op": "add", "path": deadline, "value": 15},
    ]
    json_patch = ("patch", "workloads", "canary", "--type=json", "-p", json.dumps(patch))
    real.kubectl("project/default", *json_patch)
    before = {i["uid"] for i in real.ready("canary")}
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(url)) for url in endpoint_urls(real, "canary")]
        eventually(lambda: all(len(load.answers) > 20 for load in loads), "requests are answered")
        failed = real.deploy("canary", f"--image={engine.image('broken:1')}", "--timeout=120s")
        assert failed.returncode == 20, failed.stdout + failed.stderr
        assert "IAD" in failed.stdout + failed.stderr
        eventually(
            lambda: {i["uid"] for i in real.ready("canary")} == before,
            "the instances of both cities are those from before",
            within_s=60,
        )
    for load in loads:
        assert load.failures == []
        assert set(load.answers) == {"v1"}
