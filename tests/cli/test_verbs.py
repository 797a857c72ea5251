"""``init``, ``export``, ``diff``, ``open``, ``logs``, ``exec`` and completion of names."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete

from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.labels import CITY_CODE, PLACEMENT_NAME, RESTARTED_AT, WORKLOAD_NAME
from datum_compute.api.meta.codec import JsonObject, from_json, to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.cli.groups import compute
from datum_compute.cli.workload.observe import by_name, instance_owner
from datum_compute.client.client import Client
from tests.cli.objects import deployment, instance, workload_spec
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World, simulated_gateway, write_kubeconfig

WEB = Ref(NAMESPACE, "web")
FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def stored(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.do(lambda client: client.get_plain(WORKLOAD, WEB))
    return found


# --- datum.toml


def test_init_writes_a_file_that_replaces_the_name_argument(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    assert cli.run("init", "web", "--city=dfw") == 0
    assert (tmp_path / "datum.toml").read_text() == 'workload = "web"\ncities = ["DFW"]\n'
    assert cli.run("deploy", "--image=web:1") == 0
    assert stored(world)["spec"]["placements"][0]["cityCodes"] == ["DFW"]
    for words in (("status",), ("rollout", "status"), ("restart",), ("explain",), ("export",)):
        assert cli.run(*words) == 0, words
    assert cli.run("destroy", "--confirm=web", "--no-wait") == 0
    assert cli.run("init", "api") == 2
    assert cli.run("init", "api", "--force") == 0


def test_the_file_names_the_project_unless_a_flag_does(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "datum.toml").write_text('project = "other"\n')
    assert cli.run("workloads") == 1
    assert "project/other" in cli.err
    assert cli.run("workloads", "--project=default") == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload = 3", "workload must be a string"),
        ("cities = 'DFW'", "cities must be a list"),
        ("wrkload = 'x'", "unknown key 'wrkload'"),
        ("= nonsense", "cannot be read"),
    ],
)
def test_an_invalid_project_file_is_reported(
    cli: CliRunner, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "datum.toml").write_text(text)
    assert cli.run("status") == 2
    assert message in cli.err


# --- export and diff


def test_deploying_an_export_changes_nothing(cli: CliRunner, world: World, tmp_path: Path) -> None:
    cli.run(*FIRST, "--env=A=1", "--deploy-key=k")
    cli.run("restart", "web", "--city=DFW")
    assert cli.run("export", "web") == 0
    (tmp_path / "web.yaml").write_text(cli.out)
    document = yaml.safe_load(cli.out)
    assert sorted(document["metadata"]) == ["name"]
    assert "status" not in document
    assert "restarts" not in document["spec"]
    assert cli.run("diff", "-f", "web.yaml") == 0
    assert cli.err == "No difference.\n"
    document["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = 2
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(document))
    world.writes.clear()
    assert cli.run("diff", "-f", "web.yaml") == 1
    assert cli.out == "placements[default].scaleSettings.minReplicas: 1 -> 2\n"
    assert cli.run("diff", "-f", "web.yaml", "-o", "json") == 1
    assert json.loads(cli.out)["differs"] is True
    assert world.writes == []


def test_a_diff_error_has_another_exit_code_than_a_difference(
    cli: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "compute.datumapis.com/v1alpha",
                "kind": "Workload",
                "metadata": {"name": "web"},
                "spec": workload_spec("DFW"),
            }
        )
    )
    assert cli.run("diff", "-f", "gone.yaml") == 2
    assert cli.run("diff", "-f", "web.yaml", "--kubeconfig=/gone") == 2
    assert cli.run("rollout", "diff", "web", "1", "--kubeconfig=/gone") == 2
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "unauthorized")
    assert cli.run("diff", "-f", "web.yaml") == 5


# --- open, logs, exec


def test_open_prints_the_url_or_opens_it_on_a_terminal(cli: CliRunner, world: World) -> None:
    world.gateway = lambda _request: None
    cli.run(*FIRST)
    assert cli.run("open", "web") == 0
    assert cli.out == "http://10.0.0.0:80/\n"
    cli.is_terminal = True
    assert cli.run("open", "web") == 0
    assert cli.opened == ["http://10.0.0.0:80/"]
    assert cli.run("open", "web", "--print") == 0
    assert cli.out == "http://10.0.0.0:80/\n"


def test_the_url_of_a_simulated_instance_is_not_opened(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    world.gateway = simulated_gateway
    cli.is_terminal = True
    assert cli.run("open", "web") == 0
    assert cli.opened == []
    assert cli.out == "http://10.0.0.0:80/\n"
    assert "The instances are simulated" in cli.err


def test_open_of_a_workload_without_a_port_is_an_error(cli: CliRunner) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y")
    assert cli.run("open", "web") == 3
    assert "has no port" in cli.err
    assert "datumctl compute deploy web --port=80" in cli.err


def test_logs_and_exec_report_that_the_driver_does_not_support_them(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    assert cli.run("logs", "web") == 1
    assert "does not support logs" in cli.err
    assert cli.run("logs", "web", "-c", "ap") == 3
    assert "Did you mean 'app'?" in cli.err
    name = world.do(lambda c: c.list(INSTANCE, NAMESPACE)).items[0].metadata.name
    assert cli.run("exec", name, "--", "ls") == 1
    assert "does not support exec" in cli.err
    assert cli.run("exec", name[:-1] + "9", "--", "ls") == 3
    assert f"Did you mean {name!r}?" in cli.err


# --- restart of one city


def test_a_restart_of_one_city_is_an_annotation_of_the_workload(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    assert cli.run("restart", "web", "--city=dfw") == 0
    (kept,) = stored(world)["spec"]["restarts"]
    assert kept["cityCode"] == "DFW"
    assert "restarts[DFW]: added" in cli.err
    assert "metadata" not in stored(world)["spec"]["template"]
    assert cli.run("restart", "web", "--city=ORD") == 0
    assert [r["cityCode"] for r in stored(world)["spec"]["restarts"]] == ["DFW", "ORD"]
    assert cli.run("deploy", "web", "--city=ORD", "-y") == 0
    assert cli.run("restart", "web", "--city=ORD") == 0
    assert cli.run("restart", "web", "--city=DFW") == 2
    assert "It runs in: ORD" in cli.err
    assert cli.run("restart", "web") == 0
    assert RESTARTED_AT in stored(world)["spec"]["template"]["metadata"]["annotations"]


# --- the history that older command lines kept


def test_the_history_of_an_older_command_line_is_read(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    spec = {**stored(world)["spec"]}
    old = json.loads(json.dumps(spec).replace("web:1", "web:0"))
    entry = {"rev": 4, "timestamp": "2027-01-01T00:00:00Z", "image": "web:0", "changes": "first"}

    async def create(client: Client) -> None:
        name = "compute.datumapis.com-revision-history.web"
        data = {"4": json.dumps({**entry, "actor": "bo", "spec": json.dumps(old)}), "5": "broken"}
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        await client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data=data))

    world.do(create)
    assert cli.run("rollout", "history", "web") == 0
    assert "legacy-4" in cli.out
    assert "broken" not in cli.out
    assert cli.run("rollout", "undo", "web", "--to-revision=legacy-4") == 0
    container = stored(world)["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    assert container["image"] == "web:0"
    assert cli.run("rollout", "show", "web", "legacy-4", "-o", "json") == 0
    assert json.loads(cli.out)["actor"] == "bo"
    assert cli.run("rollout", "undo", "web", "--to-revision=nine") == 2


# --- completion


def completed(cli: CliRunner, *words: str) -> list[str]:
    """What a shell would be offered after these words; the last is what was begun."""
    *before, begun = words
    streams = [io.StringIO() for _ in range(3)]
    arguments = {"obj": cli.environment(*streams)}
    shell = ShellComplete(compute, arguments, "datumctl-compute", "_X")
    found = [item.value for item in shell.get_completions(before, begun)]
    assert [stream.getvalue() for stream in streams[1:]] == ["", ""], "TAB prints nothing"
    return found


def test_names_that_exist_are_completed(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    cli.run("deploy", "api", "--image=a:1", "--city=AMS", "-y")
    assert completed(cli, "status", "") == ["api", "web"]
    assert completed(cli, "rollout", "undo", "w") == ["web"]
    assert completed(cli, "deploy", "x", "--city", "DFW,a") == ["DFW,AMS"]
    assert completed(cli, "deploy", "x", "--instance-type", "d1-standard-2") == ["d1-standard-2"]
    assert completed(cli, "logs", "web", "--container", "") == ["app"]
    assert len(completed(cli, "instances", "describe", "web-")) == 2


def test_completion_without_a_server_returns_no_names(cli: CliRunner, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "unauthorized")
    assert completed(cli, "status", "") == []
    (tmp_path / ".local/state/datum-compute/kubeconfig").unlink()
    assert completed(cli, "status", "") == []


# --- whose an instance is


def test_instances_are_matched_by_labels_then_deployment_name_then_ordinal() -> None:
    deployments = by_name([deployment("DFW", name="web-x")])
    bare = instance("web-x-0", "")
    found = instance_owner(from_json(_without_labels(bare), type(bare)), deployments)
    assert (found.workload, found.placement, found.city) == ("web", "default", "DFW")
    labels = {WORKLOAD_NAME: "api", PLACEMENT_NAME: "east", CITY_CODE: "ord"}
    labelled = {**_without_labels(bare), "metadata": {"name": "web-x-0", "labels": labels}}
    found = instance_owner(from_json(labelled, type(bare)), deployments)
    assert (found.workload, found.placement, found.city) == ("api", "east", "ORD")
    orphan = {**_without_labels(bare), "metadata": {"name": "missing"}}
    found = instance_owner(from_json(orphan, type(bare)), deployments)
    assert (found.workload, found.city) == ("unknown", "unknown")


def _without_labels(found: Any) -> JsonObject:
    return {**to_json(found), "metadata": {"name": found.metadata.name}}


def test_instances_without_labels_are_found_by_their_deployment(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)

    async def unlabel(client: Client) -> None:
        for found in (await client.list(INSTANCE, NAMESPACE)).items:
            ref = Ref(NAMESPACE, found.metadata.name)
            await client.patch(INSTANCE, ref, {"metadata": {"labels": None}})
        assert (await client.list(DEPLOYMENT, NAMESPACE)).items

    world.do(unlabel)
    assert cli.run("instances", "--workload=web", "--city=DFW", "-o", "json") == 0
    (item,) = json.loads(cli.out)["items"]
    assert (item["workload"], item["city"], item["placement"]) == ("web", "DFW", "default")


def test_a_kind_prefix_is_accepted_as_in_kubectl(cli: CliRunner) -> None:
    assert cli.run(*FIRST) == 0
    assert cli.run("instances", "-o", "name") == 0
    first = cli.out.splitlines()[0]
    assert first.startswith("instance/")
    for words in (
        *(("instances", "describe", first), ("explain", first), ("explain", "workload/web")),
        *(("status", "workloads/web"), ("workloads", "describe", "workload/web")),
        *(("status", "workloads.compute.datumapis.com/web"), ("doctor", "workload/web")),
        ("rollout", "workload/web"),
    ):
        assert cli.run(*words) == 0, (words, cli.err)
    assert cli.run("deploy", "workload/web", "--image=web:2", "-y") == 0
    assert cli.out == "workload/web updated\n"
