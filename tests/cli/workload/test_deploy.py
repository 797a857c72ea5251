"""``deploy``: the plan before the write, stored plans, and repeated deploys."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.core import ConfigMap
from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import (
    CONFIG_MAP,
    ENTITLEMENT,
    INSTANCE_TYPE,
    LOCATION_BINDING,
    WORKLOAD,
)
from datum_compute.api.labels import DEPLOY, RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject, encode, from_json
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import PLATFORM
from datum_compute.api.quota import INSTANCES, METRICS
from datum_compute.api.services import ServiceEntitlement
from datum_compute.client.client import Client
from tests.cli.commands.test_access import offered
from tests.cli.objects import condition, workload_spec
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    bucket,
    patch_status_of,
    stored,
)

WEB = Ref(NAMESPACE, "web")
FIRST = ("deploy", "web", "--image=web:1", "--city=DFW", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def container_of(workload: JsonObject) -> JsonObject:
    containers = workload["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    found: JsonObject = containers[0]
    return found


def document(name: str = "web", **spec: Any) -> JsonObject:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {**workload_spec("DFW"), **spec},
    }


# --- the plan


def test_a_dry_run_shows_the_plan_and_writes_nothing(cli: CliRunner, world: World) -> None:
    assert cli.run(*FIRST, "--dry-run") == 0
    assert "New workload web in project/default:" in cli.err
    assert "Creates 1 instance\n" in cli.err
    assert "Image web:1: not checked" in cli.err
    assert cli.err.endswith("Nothing was changed.\n")
    assert world.writes == []


@pytest.mark.parametrize("preview", ["--dry-run", "--plan-out=plan.json"])
def test_a_preview_of_a_plan_that_cannot_be_carried_out_exits_as_the_deploy_would(
    cli: CliRunner, world: World, preview: str
) -> None:
    world.do(lambda client: bucket(client, INSTANCES, 3, 3))
    assert cli.run(*FIRST, preview) == 6
    assert "Nothing was changed." in cli.err
    assert "quota of project/default is too small: instances would be 4 of 3" in cli.err
    assert cli.run(*FIRST, preview, "--skip-checks") == 0
    assert world.writes == []


def test_a_dry_run_with_a_missing_reference_exits_with_3(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    manifest = document()
    source = {"secretKeyRef": {"name": "db", "key": "password"}}
    container_of(manifest)["env"] = [{"name": "PASSWORD", "valueFrom": source}]
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(manifest))
    assert cli.run("deploy", "-f", "web.yaml", "--dry-run") == 3
    assert "names Secret/db: it does not exist" in cli.err
    assert world.writes == []


def test_a_dry_run_is_refused_as_the_write_would_be(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=XYZ", "--dry-run") == 2
    assert "no such location" in cli.err
    assert world.writes == []


def test_values_of_variables_are_never_shown(cli: CliRunner) -> None:
    cli.run(*FIRST, "--env=TOKEN=s3cret")
    assert cli.run("deploy", "web", "--env=TOKEN=0ther", "-y", "-o", "json") == 0
    plan = json.loads(cli.out.splitlines()[0])
    assert plan["changes"] == ["containers[app].env[TOKEN]: changed"]
    assert "s3cret" not in cli.out + cli.err
    assert "0ther" not in cli.out + cli.err


def test_a_variable_can_be_removed_and_a_missing_one_is_no_error(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST, "--env=A=1", "--env=B=2")
    assert cli.run("deploy", "web", "--env=A-", "--env=C-", "-y") == 0
    assert container_of(stored(world))["env"] == [{"name": "B", "value": "2"}]


def test_the_plan_names_recreated_and_removed_instances(cli: CliRunner) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--min=2", "-y")
    change = ("deploy", "web", "--image=web:2", "--city=DFW", "--min=1", "--dry-run", "-o", "json")
    assert cli.run(*change) == 0
    plan = json.loads(cli.out)
    assert (len(plan["recreated"]), len(plan["removed"]), plan["created"]) == (1, 3, 0)
    assert plan["removals"] == ["ORD", "1 of 2 instances in each city of default"]


def test_exceeded_quota_is_reported_before_the_write(cli: CliRunner, world: World) -> None:
    world.do(lambda client: bucket(client, INSTANCES, 3, 2))
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW,ORD", "-y") == 6
    assert "Quota: instances 4 of 3" in cli.err
    assert "instances would be 4 of 3, 1 too many" in cli.err
    assert world.writes == []
    skipped = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "-y", "--skip-checks")
    assert cli.run(*skipped) == 0
    assert "Warning: The quota" in cli.err


@pytest.mark.parametrize(
    ("order", "during", "room"),
    [("Sequential", 3, 3), ("Sequential", 3, 9), ("Parallel", 4, 4), ("CanaryCity", 3, 3)],
)
def test_the_quota_lines_count_the_surge_instances(
    cli: CliRunner, world: World, tmp_path: Path, order: str, during: int, room: int
) -> None:
    deploy_in_order(cli, tmp_path, order, "web:1")
    world.do(lambda client: bucket(client, INSTANCES, room, 2))
    deploy_in_order(cli, tmp_path, order, "web:2")
    assert f"Quota: instances 2 of {room} ({during} during the rollout)\n" in cli.err
    assert "Warning" not in cli.err
    assert "without service" not in cli.err


def deploy_in_order(cli: CliRunner, folder: Path, order: str, image: str) -> None:
    """Deploy one replica in each of two cities."""
    wanted = document()
    wanted["spec"]["rollout"] = {"cityOrder": order}
    wanted["spec"]["placements"] = [
        {"name": "default", "cityCodes": ["DFW", "ORD"], "scaleSettings": {"minReplicas": 1}}
    ]
    container_of(wanted)["image"] = image
    (folder / "web.yaml").write_text(yaml.safe_dump(wanted))
    assert cli.run("deploy", "-f", "web.yaml", "-y") == 0


def test_missing_quota_for_a_surge_instance_is_stated_and_refuses_nothing(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    deploy_in_order(cli, tmp_path, "Parallel", "web:1")
    world.do(lambda client: bucket(client, INSTANCES, 2, 2))
    deploy_in_order(cli, tmp_path, "Parallel", "web:2")
    assert "Quota: instances 2 of 2\n" in cli.err
    assert (
        "Warning: The quota has no room for a surge instance. The rollout continues without surge "
        "(SurgeUnavailable) in DFW, ORD." in cli.err
    )
    for city in ("DFW", "ORD"):
        assert f"{city}: 1 instance, about 30 s without service" in cli.err


def test_quota_for_some_surge_instances_is_stated(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    deploy_in_order(cli, tmp_path, "Parallel", "web:1")
    world.do(lambda client: bucket(client, INSTANCES, 3, 2))
    deploy_in_order(cli, tmp_path, "Parallel", "web:2")
    assert "Quota: instances 2 of 3 (3 during the rollout)" in cli.err
    assert "Warning: The quota has room for 1 of 2 surge instances." in cli.err
    assert "without service" not in cli.err


def test_a_quota_without_a_bucket_refuses_nothing(cli: CliRunner, world: World) -> None:
    """Such as in the first moment of a project, or while its disk is full."""
    world.do(lambda client: bucket(client, INSTANCES, 0, 0, added_up=False))
    assert cli.run(*FIRST) == 0
    assert "Quota: instances not known yet" in cli.err


@pytest.mark.parametrize(("reason", "again"), [("CellDrained", False), ("LocationNotReady", True)])
def test_an_unavailable_city_causes_a_warning(
    cli: CliRunner, world: World, reason: str, again: bool
) -> None:
    """A drained city updates the instances that it has."""

    async def close(client: Client) -> None:
        available = condition("Available", "False", reason, "Cell dfw is away.")
        await patch_status_of(client, LOCATION_BINDING, Ref("", "dfw"), {"conditions": [available]})

    world.do(close)
    warning = "DFW cannot start instances now, and the workload waits for it: Cell dfw is away"
    assert cli.run(*FIRST) == 0
    assert cli.err.count(warning) == 1
    assert cli.run("deploy", "web", "--image=web:2", "--dry-run") == 0
    assert (warning in cli.err) == again
    assert cli.run("deploy", "web", "--image=web:2", "--dry-run", "-o", "json") == 0
    assert bool(json.loads(cli.out)["warnings"]) == again


def test_a_warning_of_the_server_is_printed_once(cli: CliRunner, world: World) -> None:
    async def deprecate(client: Client) -> None:
        resources = {"cpu": "2", "memory": "4Gi"}
        for name in ("d2-large", "d3-large"):
            new = {"metadata": {"name": name}, "spec": {"resources": resources}}
            await client.create(INSTANCE_TYPE, from_json(new, InstanceType))
        lifecycle = {"phase": "Deprecated", "replacementInstanceType": "d3-large"}
        await client.patch(INSTANCE_TYPE, Ref("", "d2-large"), {"spec": {"lifecycle": lifecycle}})

    world.do(deprecate, PLATFORM)
    for words in (("--dry-run",), ("-y", "--no-wait")):
        assert cli.run(*FIRST[:-1], "--instance-type=d2-large", *words) == 0
        assert cli.err.count("d2-large is deprecated; use d3-large instead") == 1
        assert "Warning: spec.template" in cli.err


def test_referenced_objects_must_exist_with_their_keys(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    source = {"configMapKeyRef": {"name": "settings", "key": "mode"}}
    wanted = document()
    container_of(wanted)["env"] = [{"name": "MODE", "valueFrom": source}]
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(wanted))
    run = ("deploy", "-f", "web.yaml", "--no-wait")
    assert cli.run(*run) == 3
    assert "names ConfigMap/settings: it does not exist" in cli.err

    async def create(client: Client) -> None:
        metadata = ObjectMeta(name="settings", namespace=NAMESPACE)
        await client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data={"other": "1"}))

    world.do(create)
    assert cli.run(*run) == 3
    assert "key 'mode' is missing" in cli.err
    patch = {"data": {"mode": "fast"}}
    world.do(lambda c: c.patch(CONFIG_MAP, Ref(NAMESPACE, "settings"), patch))
    assert cli.run(*run) == 0
    assert "Refers to: ConfigMap/settings found" in cli.err


def test_flags_change_only_what_they_name(cli: CliRunner, world: World, tmp_path: Path) -> None:
    wanted = document()
    wanted["metadata"]["labels"] = {"tier": "front"}
    containers = wanted["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    containers[0]["command"] = ["serve", "--fast"]
    containers.append({"name": "sidecar", "image": "proxy:3"})
    wanted["spec"]["template"]["metadata"] = {"annotations": {"note": "kept"}}
    wanted["spec"]["placements"].append(
        {"name": "east", "cityCodes": ["IAD"], "scaleSettings": {"minReplicas": 2}}
    )
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(wanted))
    assert cli.run("deploy", "-f", "web.yaml") == 0
    before = stored(world)
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    after = stored(world)
    assert container_of(after).pop("image") == "web:2"
    assert container_of(before).pop("image") == "web:1"
    assert after["spec"] == before["spec"]
    managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert "datumctl-compute" in managers


def test_a_file_does_not_remove_restart_annotations(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(document()))
    cli.run("deploy", "-f", "web.yaml")
    cli.run("restart", "web", "--city=DFW")
    cli.run("restart", "web")
    assert cli.run("deploy", "-f", "web.yaml") == 0
    assert cli.out == "workload/web unchanged\n"
    annotations = stored(world)["spec"]["template"]["metadata"]["annotations"]
    assert RESTARTED_AT in annotations


# --- requests before the first write


def serve_images(request: Request) -> Response | None:
    """The gateway of a platform whose registry has every image."""
    if not request.path.endswith("/namespaces/default/images"):
        return None
    return Response(200, encode({"outcome": "found"}))


@dataclass
class RequestRecord:
    """The requests before the first write, grouped: those of a group were sent concurrently."""

    groups: list[set[str]] = field(default_factory=list)
    pending: int = 0
    is_written: bool = False

    @property
    def count(self) -> int:
        return sum(map(len, self.groups))

    async def before(self, request: Request, _client: Client) -> None:
        """Record the method and the last part of the path."""
        is_dry_run = "dryRun" in request.query
        self.is_written = self.is_written or (request.method != "GET" and not is_dry_run)
        if self.is_written:
            return
        if not self.pending:
            self.groups.append(set())
        self.pending += 1
        suffix = "?dryRun" if is_dry_run else ""
        text = f"{request.method} {request.path.rpartition('/')[2]}{suffix}"
        assert not any(text in group for group in self.groups), f"{text} is sent twice"
        self.groups[-1].add(text)
        await asyncio.sleep(0.01)  # until all concurrent requests are sent

    async def after(self, _request: Request) -> None:
        if not self.is_written:
            self.pending -= 1


def record_requests(world: World) -> RequestRecord:
    """Record the requests of the next command. The project has access to compute and a quota of
    each resource, as on a real platform."""
    condition_ready = condition("Ready", "True", "EntitlementActive")
    entitlement = from_json(
        {"metadata": {"name": "compute"}, "spec": {"serviceRef": {"name": "compute"}}},
        ServiceEntitlement,
    )

    async def enable(client: Client) -> None:
        await client.create(ENTITLEMENT, entitlement)
        status = {"phase": "Active", "conditions": [condition_ready]}
        await patch_status_of(client, ENTITLEMENT, Ref("", "compute"), status)
        for metric in METRICS:
            await bucket(client, metric, metric.default_limit, 0)

    offered(world, "SelfService")
    world.do(enable)
    world.gateway = serve_images
    record = RequestRecord()
    world.before, world.after = record.before, record.after
    return record


READ = {"GET serviceentitlements", "GET web"}
NEW_WORKLOAD = {"GET allowancebuckets", "GET images"}


def test_an_update_of_the_image_sends_six_requests_before_the_write(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST, "--min=2")
    recorded = record_requests(world)
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    assert recorded.groups == [
        READ,
        {"PATCH web?dryRun"},
        {"GET instances", "GET images", "GET locationbindings"},
    ]
    assert recorded.count == 6


def test_an_update_with_surge_reads_the_quota_too(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    recorded = record_requests(world)
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    assert set().union(*recorded.groups[2:]) == {
        *("GET instances", "GET images", "GET locationbindings", "GET allowancebuckets"),
    }
    assert recorded.count == 7


def test_an_update_that_adds_instances_reads_the_quota_concurrently(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    recorded = record_requests(world)
    assert cli.run("deploy", "web", "--image=web:2", "--min=2", "-y") == 0
    assert set().union(*recorded.groups[2:]) == {
        *("GET instances", "GET images", "GET locationbindings"),
        *("GET allowancebuckets", "GET resourceclaims", "GET instancetypes"),
    }


def test_a_first_deploy_sends_six_requests_before_the_write(cli: CliRunner, world: World) -> None:
    """It does not list instances or claims, because there are none."""
    recorded = record_requests(world)
    assert cli.run(*FIRST) == 0
    assert recorded.groups == [
        READ,
        {"POST workloads?dryRun"},
        {*NEW_WORKLOAD, "GET instancetypes"},
    ]
    assert recorded.count == 6


def test_a_first_deploy_with_limits_reads_no_instance_types(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    manifest = document()
    container_of(manifest)["resources"] = {"limits": {"cpu": "500m", "memory": "512Mi"}}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(manifest))
    recorded = record_requests(world)
    assert cli.run("deploy", "-f", "web.yaml", "-y") == 0
    assert recorded.groups == [READ, {"POST workloads?dryRun"}, NEW_WORKLOAD]


def test_a_preview_sends_the_same_requests_without_the_access(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST, "--min=2")
    recorded = record_requests(world)
    assert cli.run("deploy", "web", "--image=web:2", "--dry-run") == 0
    assert recorded.groups == [
        {"GET web"},
        {"PATCH web?dryRun"},
        {"GET instances", "GET images", "GET locationbindings"},
    ]


def test_a_deploy_that_uses_no_more_quota_does_not_check_it(cli: CliRunner, world: World) -> None:
    """The quota may have been lowered since; an update in place is still possible."""
    cli.run(*FIRST, "--min=2")
    world.do(lambda client: bucket(client, INSTANCES, 2, 2))
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    assert "Quota" not in cli.err
    assert cli.run("deploy", "web", "--min=3", "-y") == 6


def test_confirmation_depends_on_the_kind_of_a_change_and_not_on_its_text(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    labeled = document()
    labeled["metadata"]["labels"] = {"note": "x"}
    labeled["metadata"]["annotations"] = {"note": "old"}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(labeled))
    assert cli.run("deploy", "-f", "web.yaml") == 0
    labeled["metadata"]["annotations"]["note"] = "sidecar: removed"
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(labeled))
    assert cli.run("deploy", "-f", "web.yaml") == 0
    assert "metadata.annotations.note: old -> sidecar: removed" in cli.err


# --- files


def test_a_directory_and_several_documents_are_one_deploy(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "two.yaml").write_text(yaml.safe_dump_all([document("a"), document("b")]))
    (folder / "one.json").write_text(json.dumps(document("c")))
    (folder / "README.md").write_text("not a manifest")
    assert cli.run("deploy", "-f", "all") == 0
    assert cli.out.splitlines() == [f"workload/{name} created" for name in ("c", "a", "b")]
    world.writes.clear()
    assert cli.run("deploy", "-f", "all") == 0
    assert world.writes == []


def test_of_several_documents_none_is_written_if_one_is_refused(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    bad = document("b")
    bad["spec"]["placements"][0]["cityCodes"] = ["XYZ"]
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all([document("a"), bad]))
    assert cli.run("deploy", "-f", "two.yaml") == 2
    assert world.writes == []


def test_an_unknown_field_is_reported_with_line_and_column(cli: CliRunner, tmp_path: Path) -> None:
    text = yaml.safe_dump(document()).replace("scaleSettings", "scaleSetings")
    (tmp_path / "web.yaml").write_text(text)
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "scaleSetings" in row)
    assert cli.run("deploy", "-f", "web.yaml", "-o", "json") == 2
    error = json.loads(cli.err)["error"]
    assert f"web.yaml:{line}:5: spec.placements[0].scaleSetings: unknown field" in error["message"]
    assert "did you mean scaleSettings?" in error["message"]
    assert error["field"] == "spec.placements[0].scaleSettings"


# --- plans in files


def test_a_stored_plan_is_applied_exactly_or_rejected(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    assert cli.run(*FIRST, "--env=A=s3cret", "--plan-out=plan.json") == 0
    assert world.writes == []
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600
    assert cli.run("deploy", "--plan=plan.json", "-y") == 0
    assert container_of(stored(world))["env"] == [{"name": "A", "value": "s3cret"}]
    assert cli.run("deploy", "web", "--image=web:2", "--plan-out=plan.json", "-y") == 0
    world.do(lambda c: c.patch(WORKLOAD, WEB, {"metadata": {"labels": {"theirs": "1"}}}))
    world.writes.clear()
    assert cli.run("deploy", "--plan=plan.json", "-y") == 4
    assert "has changed since the plan was made; nothing was written" in cli.err
    assert world.writes == []


def test_a_status_update_does_not_invalidate_a_plan(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    assert cli.run("deploy", "web", "--image=web:2", "--plan-out=plan.json", "-y") == 0
    found = stored(world)
    version = found["metadata"]["resourceVersion"]
    world.do(lambda c: c.patch_status(WORKLOAD, WEB, {"replicas": 7}, version=version))
    assert cli.run("deploy", "--plan=plan.json", "-y") == 0
    assert container_of(stored(world))["image"] == "web:2"


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "other"}'])
def test_a_file_that_is_no_plan_is_refused(cli: CliRunner, tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert cli.run("deploy", "--plan=plan.json") == 2
    assert "is not a plan" in cli.err


# --- deploy keys

KEYED = (*FIRST, "--deploy-key=build-7")


def killed_at(number: int) -> Callable[[Request, Client], Any]:
    """Interrupts the command at its n-th request."""
    count = [0]

    async def before(_request: Request, _client: Client) -> None:
        count[0] += 1
        if count[0] == number:
            signal.raise_signal(signal.SIGINT)

    return before


@pytest.mark.parametrize("number", range(1, 16))
def test_a_deploy_killed_at_any_request_and_run_again_is_the_same_deploy(
    cli: CliRunner, world: World, number: int
) -> None:
    world.before = killed_at(number)
    first = cli.run(*KEYED)
    assert first in (0, 130)
    world.before = None
    assert cli.run(*KEYED) == 0
    assert cli.out == "workload/web created\n"
    assert len([w for w in world.writes if w.method == "POST"]) == 1
    assert stored(world)["metadata"]["generation"] == 1


def test_a_write_without_a_response_is_detected(cli: CliRunner, world: World) -> None:
    async def lose(request: Request) -> None:
        if request.method == "POST" and "dryRun" not in request.query:
            raise Unreachable("the connection broke")

    world.after = lose
    assert cli.run(*KEYED) == 1
    world.after = None
    assert cli.run(*KEYED) == 0
    assert cli.out == "workload/web created\n"
    assert len(world.writes) == 1


def test_a_deploy_key_identifies_one_deploy(cli: CliRunner, world: World) -> None:
    assert cli.run(*KEYED) == 0
    assert cli.run("deploy", "web", "--image=web:2", "-y", "--deploy-key=build-7") == 2
    assert "was used for another deploy" in cli.err
    assert cli.run("deploy", "web", "--image=web:2", "-y", "--deploy-key=build-8") == 0
    record = json.loads(stored(world)["metadata"]["annotations"][DEPLOY])
    assert (record["key"], record["action"], record["generation"]) == ("build-8", "updated", 2)


def test_a_repeated_deploy_key_does_not_undo_later_changes(cli: CliRunner, world: World) -> None:
    assert cli.run(*KEYED) == 0
    assert cli.run("scale", "web", "--min=3") == 0
    world.writes.clear()
    assert cli.run(*KEYED) == 4
    assert "the workload was changed since" in cli.err
    assert world.writes == []


# --- asked on a terminal


def test_a_missing_name_is_requested_on_a_terminal(cli: CliRunner, world: World) -> None:
    cli.is_terminal, cli.environ = True, {"NO_COLOR": "1"}
    cli.typed = "Bad_Name\nweb\nweb:1\nXYZ\ndfw,ord\n0\n2\ny\n"
    assert cli.run("deploy") == 0
    assert "Use up to 63 lower-case letters" in cli.err
    assert "XYZ is none of AMS, DFW, IAD, ORD." in cli.err
    placement = stored(world)["spec"]["placements"][0]
    assert (placement["cityCodes"], placement["scaleSettings"]["minReplicas"]) == (
        ["DFW", "ORD"],
        2,
    )


def test_without_a_terminal_nothing_is_requested(cli: CliRunner) -> None:
    assert cli.run("deploy") == 2
    assert "missing the name of a workload" in cli.err
