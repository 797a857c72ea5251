"""Settings: flag > environment > file > default, each checked alike and blamed by its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from datum_compute.api.plane import HUB, PLATFORM, PlaneName
from datum_compute.app.layers import environment_name, flags_of
from datum_compute.app.reached_planes import (
    is_single_cluster,
    leases_of,
    reached_planes,
)
from datum_compute.app.settings import (
    ManagerSettings,
    local_parser,
    local_settings,
    manager_parser,
    manager_settings,
)
from datum_compute.client.kubeconfig import KubeconfigError

LOCAL = ("--state-dir", "state")
MANAGER = ("--state-dir=s", "--kubeconfig=k", "--enable-management-controllers")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def refusal(
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> str:
    with pytest.raises(SystemExit) as stopped:
        manager_settings([*MANAGER, *arguments], environment or {})
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_each_layer_beats_the_one_below(file: Path) -> None:
    file.write_text("log-level: debug\nlog-format: json\nport: 1234\n")
    environment = {"DATUM_LOG_LEVEL": "warning", "DATUM_PORT": "2345", "DATUM_CONFIG": str(file)}
    settings = local_settings([*LOCAL, "--port", "3456"], environment)
    assert settings.telemetry.log_format == "json", "from the file"
    assert settings.telemetry.log_level == "warning", "from the environment"
    assert settings.port == 3456, "from a flag"
    assert settings.driver == "simulated", "the default"


def test_switches_can_be_turned_off_in_every_layer(file: Path) -> None:
    assert local_settings(LOCAL, {}).controllers
    assert not local_settings([*LOCAL, "--no-controllers"], {}).controllers
    assert not local_settings(LOCAL, {"DATUM_CONTROLLERS": "false"}).controllers
    file.write_text("controllers: false\n")
    assert not local_settings([*LOCAL, "--config", str(file)], {}).controllers
    assert local_settings([*LOCAL, "--config", str(file), "--controllers"], {}).controllers


def test_what_a_file_may_not_say_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for text, complaint in (
        ("log-levle: debug", "unknown settings: log-levle"),
        ("- a list", "holds no settings"),
        ("log-level: loud", "invalid choice"),
        ("leader-elect: perhaps", "must be true or false"),
        ("config: other.yaml", "unknown settings: config"),
        ("a: [", "cannot be read"),
    ):
        file.write_text(text)
        said = refusal(capsys, ["--config", str(file)])
        assert complaint in said
        assert str(file) in said
    assert "cannot be read" in refusal(capsys, ["--config", str(tmp_path / "absent")])


def test_a_mistake_in_the_environment_is_said_to_be_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "environment" in refusal(capsys, [], {"DATUM_LOG_LEVEL": "loud"})


@pytest.mark.parametrize("address", ["0.0.0.0:9090", "10.0.0.1:1", "[::]:1", "localhost", "x:y"])
def test_metrics_are_served_on_this_machine_only(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--metrics-address" in refusal(capsys, [f"--metrics-address={address}"])


def test_metrics_are_off_until_asked_for() -> None:
    assert manager_settings(MANAGER, {}).metrics_address is None
    asked = manager_settings([*MANAGER, "--metrics-address=127.0.0.1:9090"], {})
    assert asked.metrics_address == ("127.0.0.1", 9090)
    assert manager_settings([*MANAGER, "--metrics-address=[::1]:1"], {}).metrics_address == (
        "::1",
        1,
    )


def test_an_abbreviated_flag_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unrecognized" in refusal(capsys, ["--leader-elec"])


def test_every_flag_has_a_name_in_the_environment_and_a_word_of_help() -> None:
    for parser in (local_parser(), manager_parser()):
        for name, action in flags_of(parser).items():
            assert environment_name(name).isupper()
            assert action.help


# --- leases


def settings_of(*flags: str) -> ManagerSettings:
    return manager_settings(["--state-dir=s", "--kubeconfig=k", *flags], {})


PLANES = [PlaneName(name) for name in ("hub", "cell/dfw", "cell/ams", "project/default")]


def test_leading_is_the_default_and_can_be_left_out() -> None:
    assert manager_settings(MANAGER, {}).leader.enabled
    assert not manager_settings([*MANAGER, "--no-leader-elect"], {}).leader.enabled


def test_each_group_of_controllers_has_a_lease_where_it_works() -> None:
    everything = settings_of(
        "--enable-management-controllers", "--enable-propagator", "--enable-cell-controllers"
    )
    assert leases_of(everything, PLANES) == [
        ("cell/ams", "compute-manager-cell"),
        ("cell/dfw", "compute-manager-cell"),
        (HUB, "compute-manager-management"),
        (HUB, "compute-manager-propagator"),
    ]


def test_managers_of_different_cells_do_not_wait_for_each_other() -> None:
    cell = settings_of("--enable-cell-controllers")
    dfw = leases_of(cell, [HUB, PlaneName("cell/dfw")])
    ams = leases_of(cell, [HUB, PlaneName("cell/ams")])
    assert not set(dfw) & set(ams)


def test_one_lease_can_be_named_instead() -> None:
    named = ("--leader-election-plane=hub", "--leader-election-name=all")
    assert leases_of(settings_of("--enable-propagator", *named), PLANES) == [(HUB, "all")]


# --- which planes

BOTH = ("--enable-management-controllers", "--enable-cell-controllers")


def kubeconfig(path: Path, *contexts: str, server: str = "https://127.0.0.1:6443") -> Path:
    named = [f"{{name: {name}, context: {{cluster: c, user: u}}}}" for name in contexts]
    path.write_text(
        f"current-context: {contexts[0]}\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        f"contexts: [{', '.join(named)}]\n"
    )
    return path


def managed(path: Path, *flags: str) -> ManagerSettings:
    return manager_settings([f"--kubeconfig={path}", "--state-dir=s", *flags], {})


def test_both_groups_against_one_api_server_are_single_cluster_mode(tmp_path: Path) -> None:
    settings = managed(kubeconfig(tmp_path / "k", "kind", "other"), *BOTH)
    assert is_single_cluster(settings)
    planes = reached_planes(settings, single=True)
    assert set(planes) == {PLATFORM, "project/default", "cell/single"}
    assert {connection.context for connection in planes.values()} == {"kind"}
    assert leases_of(settings, planes, single=True) == [(PLATFORM, "compute-manager")]


def test_project_cluster_and_context_of_the_single_cluster_can_be_named(tmp_path: Path) -> None:
    named = ("--project=shop", "--cluster-name=attic", "--context=other")
    settings = managed(kubeconfig(tmp_path / "k", "kind", "other"), *BOTH, *named)
    planes = reached_planes(settings, single=is_single_cluster(settings))
    assert set(planes) == {PLATFORM, "project/shop", "cell/attic"}
    assert {connection.context for connection in planes.values()} == {"other"}


@pytest.mark.parametrize("flags", [BOTH[:1], BOTH[1:], (*BOTH, "--mode=federated")])
def test_an_api_server_is_never_taken_for_all_planes_by_accident(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    settings = managed(kubeconfig(tmp_path / "k", "kind"), *flags)
    assert not is_single_cluster(settings)
    with pytest.raises(KubeconfigError, match=r"no context for: .*hub.*--mode single"):
        reached_planes(settings, single=False)


def test_contexts_named_as_planes_mean_a_federation(tmp_path: Path) -> None:
    contexts = ("hub", "platform", "project/default", "cell/dfw", "mine")
    settings = managed(kubeconfig(tmp_path / "k", *contexts), *BOTH)
    assert not is_single_cluster(settings)
    assert set(reached_planes(settings, single=False)) == set(contexts) - {"mine"}


def test_the_hub_may_have_a_kubeconfig_of_its_own(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "cell/dfw", "project/default")
    hub = kubeconfig(tmp_path / "h", "karmada", "two", server="https://hub:5443")
    flags = (f"--federation-kubeconfig={hub}", "--federation-context=two")
    planes = reached_planes(managed(file, BOTH[1], *flags), single=False)
    assert (planes[HUB].context, planes[HUB].server) == ("two", "https://hub:5443")


def test_a_hub_file_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "cell/dfw", "project/default")
    settings = managed(file, BOTH[1], f"--federation-kubeconfig={tmp_path / 'absent'}")
    with pytest.raises(KubeconfigError, match="absent"):
        reached_planes(settings, single=False)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--mode=single"], "--enable-cell-controllers"),
        ([BOTH[1], "--mode=single", "--enable-propagator"], "no propagator"),
        ([BOTH[1], "--mode=single", "--federation-kubeconfig=h"], "has no hub"),
        (["--federation-context=x"], "--federation-kubeconfig"),
        (["--project=No Such"], "DNS label"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refusal(capsys, flags)


def test_health_may_be_asked_from_anywhere() -> None:
    assert manager_settings(MANAGER, {}).health_address is None
    asked = manager_settings([*MANAGER, "--health-probe-bind-address=:8081"], {})
    assert asked.health_address == ("0.0.0.0", 8081)
