"""Settings: precedence of flag, environment, file and default; errors name the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from datum_compute.api.planes import HUB, PLATFORM, PlaneName
from datum_compute.app.manager_connections import leases_of, plane_connections, project_api
from datum_compute.app.settings.feature_gates import enabled_controllers
from datum_compute.app.settings.options import PROGRAMS
from datum_compute.app.settings.settings import (
    ManagerSettings,
    TlsPortSettings,
    cell_settings,
    local_settings,
    manager_settings,
)
from datum_compute.client.auth.kubeconfig import KubeconfigError
from datum_compute.controllers import registry
from datum_compute.server.flowcontrol.control import FlowLimits
from datum_compute.server.http.send_budget import PortLimits

LOCAL = ("--state-dir", "state")
MANAGER = ("--state-dir=s", "--kubeconfig=k", "--enable-management-controllers")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def read_error(
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> str:
    with pytest.raises(SystemExit) as stopped:
        manager_settings([*MANAGER, *arguments], environment or {})
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_a_flag_overrides_the_environment_and_that_the_file(file: Path) -> None:
    file.write_text("log-level: debug\nlog-format: json\nport: 1234\n")
    environment = {"DATUM_LOG_LEVEL": "warning", "DATUM_PORT": "2345", "DATUM_CONFIG": str(file)}
    settings = local_settings([*LOCAL, "--port", "3456"], environment)
    assert settings.telemetry.log_format == "json", "from the file"
    assert settings.telemetry.log_level == "warning", "from the environment"
    assert settings.listener.port == 3456, "from a flag"
    assert settings.driver.name == "auto", "the default"


def test_switches_can_be_turned_off_in_every_layer(file: Path) -> None:
    assert local_settings(LOCAL, {}).controllers
    assert not local_settings([*LOCAL, "--no-controllers"], {}).controllers
    assert not local_settings(LOCAL, {"DATUM_CONTROLLERS": "false"}).controllers
    file.write_text("controllers: false\n")
    assert not local_settings([*LOCAL, "--config", str(file)], {}).controllers
    assert local_settings([*LOCAL, "--config", str(file), "--controllers"], {}).controllers


def test_cells_can_be_set_in_every_layer(file: Path) -> None:
    assert local_settings(LOCAL, {}).cells.names == ()
    named = local_settings([*LOCAL, "--cells", "DFW, ams"], {}).cells.names
    assert named == ("cell/dfw", "cell/ams")
    file.write_text("cells: lhr\n")
    assert local_settings([*LOCAL, "--config", str(file)], {}).cells.names == ("cell/lhr",)
    file.write_text("cells: [lhr, iad]\n")
    listed = local_settings([*LOCAL, "--config", str(file)], {}).cells.names
    assert listed == ("cell/lhr", "cell/iad")


@pytest.mark.parametrize("cells", ["dfw,,iad", "-x", "dfw,dfw", ""])
def test_invalid_cells_are_rejected(cells: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        local_settings([*LOCAL, f"--cells={cells}"], {})
    assert "--cells" in capsys.readouterr().err


def test_invalid_settings_in_a_file_are_rejected(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for text, complaint in (
        (
            "mode: single\nlog-levle: debug",
            ":2:1: unknown setting log-levle, did you mean log-level?",
        ),
        ("log-level: debug\nmode: single\nlog-level: info", ':3:1: duplicate key "log-level"'),
        ("log:\n  level: debug\nlog-level: info", ":3:1: log-level is set twice"),
        ("log:\n  level: debug\n  level: info", ':3:3: duplicate key "level"'),
        ("feature-gates: {A: true, A: false}", ':1:26: duplicate key "A"'),
        ("- a list", "contains no settings"),
        ("log-level: loud", ":1:1: log-level: 'loud' is not one of"),
        ("leader-elect: perhaps", ":1:1: leader-elect: 'perhaps' is not a valid boolean"),
        ("config: other.yaml", "unknown setting config"),
        ("a: [", "cannot be read"),
    ):
        file.write_text(text)
        message = read_error(capsys, ["--config", str(file)])
        assert complaint in message
        assert str(file) in message
    assert "cannot be read" in read_error(capsys, ["--config", str(tmp_path / "absent")])


def test_the_error_of_an_invalid_variable_names_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "environment DATUM_LOG_LEVEL" in read_error(capsys, [], {"DATUM_LOG_LEVEL": "loud"})


@pytest.mark.parametrize("address", ["0.0.0.0:9090", "10.0.0.1:1", "[::]:1", "localhost", "x:y"])
def test_a_metrics_address_beyond_loopback_needs_a_token(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--metrics-address" in read_error(capsys, [f"--metrics-address={address}"])


def test_metrics_can_be_served_on_any_address_with_a_token() -> None:
    flags = ["--metrics-address=0.0.0.0:9090", "--metrics-token-file=/run/token"]
    assert manager_settings([*MANAGER, *flags], {}).ports.metrics == ("0.0.0.0", 9090)


def test_metrics_are_off_by_default() -> None:
    assert manager_settings(MANAGER, {}).ports.metrics is None
    asked = manager_settings([*MANAGER, "--metrics-address=127.0.0.1:9090"], {})
    assert asked.ports.metrics == ("127.0.0.1", 9090)
    assert manager_settings([*MANAGER, "--metrics-address=[::1]:1"], {}).ports.metrics == ("::1", 1)


def test_an_abbreviated_flag_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such option" in read_error(capsys, ["--leader-elec"])


def test_every_setting_has_an_environment_variable_and_a_description() -> None:
    for program in PROGRAMS:
        for setting in program.settings:
            assert setting.variable.isupper()
            assert setting.meaning.endswith(".")


def test_a_setting_that_is_null_in_the_file_keeps_its_default(file: Path) -> None:
    file.write_text("log-level:\n")
    assert local_settings([*LOCAL, f"--config={file}"], {}).telemetry.log_level == "info"


def test_config_show_prints_every_value_and_its_source(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("driver: simulated\nlog: {format: json}\ncells: [dfw, iad]\n")
    flags = ["config", "show", f"--config={file}", "--port=4711", "--no-controllers"]
    with pytest.raises(SystemExit) as stopped:
        local_settings(flags, {"DATUM_LOG_LEVEL": "debug"})
    assert stopped.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {
        name: (value, source) for name, value, source in (_cut(line, lines[0]) for line in lines)
    }
    assert shown["NAME"] == ("VALUE", "SOURCE")
    assert shown["port"] == ("4711", "flag")
    assert shown["controllers"] == ("false", "flag")
    assert shown["log-level"] == ("debug", "environment DATUM_LOG_LEVEL")
    assert shown["driver"] == ("simulated", f"{file}:1:1: driver")
    assert shown["log-format"] == ("json", f"{file}:2:7: log-format")
    assert shown["cells"] == ("dfw,iad", f"{file}:3:1: cells")
    assert shown["cell-credential-lifetime"] == ("720h", "default")
    assert shown["state-dir"] == ("", "default"), "a required setting may be missing"


@pytest.mark.parametrize("settings", [local_settings, cell_settings, manager_settings])
def test_every_process_shows_its_settings_and_rejects_invalid_ones(
    settings: Callable[[Sequence[str], Mapping[str, str]], object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        settings(["config", "show"], {})
    assert stopped.value.code == 0
    assert "log-level" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        settings(["config", "show"], {"DATUM_LOG_LEVEL": "loud"})
    assert stopped.value.code == 2
    assert "DATUM_LOG_LEVEL" in capsys.readouterr().err


def _cut(line: str, header: str) -> tuple[str, str, str]:
    value, source = header.index("VALUE"), header.index("SOURCE")
    return line[:value].strip(), line[value:source].strip(), line[source:].strip()


# --- leases


def settings_of(*flags: str) -> ManagerSettings:
    return manager_settings(["--state-dir=s", "--kubeconfig=k", *flags], {})


PLANES = [PlaneName(name) for name in ("hub", "cell/dfw", "cell/ams", "project/default")]


def test_leader_election_is_on_by_default_and_can_be_disabled() -> None:
    assert manager_settings(MANAGER, {}).leader.enabled
    assert not manager_settings([*MANAGER, "--no-leader-elect"], {}).leader.enabled


def test_each_group_of_controllers_has_a_lease_on_its_plane() -> None:
    everything = settings_of(
        "--enable-management-controllers", "--enable-propagator", "--enable-cell-controllers"
    )
    assert leases_of(everything, PLANES) == [
        ("cell/ams", "compute-manager-cell"),
        ("cell/dfw", "compute-manager-cell"),
        (HUB, "compute-manager-management"),
        (HUB, "compute-manager-propagator"),
    ]


def test_managers_of_different_cells_use_different_leases() -> None:
    cell = settings_of("--enable-cell-controllers")
    dfw = leases_of(cell, [HUB, PlaneName("cell/dfw")])
    ams = leases_of(cell, [HUB, PlaneName("cell/ams")])
    assert not set(dfw) & set(ams)


def test_the_name_of_the_lease_can_be_set() -> None:
    named = ("--leader-election-plane=hub", "--leader-election-name=all")
    assert leases_of(settings_of("--enable-propagator", *named), PLANES) == [(HUB, "all")]


# --- planes

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


def load_manager_settings(path: Path, *flags: str) -> ManagerSettings:
    return manager_settings([f"--kubeconfig={path}", "--state-dir=s", *flags], {})


def test_one_api_server_serves_every_plane_in_single_cluster_mode(tmp_path: Path) -> None:
    settings = load_manager_settings(
        kubeconfig(tmp_path / "k", "kind", "other"), *BOTH, "--mode=single"
    )
    planes = plane_connections(settings)
    assert set(planes) == {PLATFORM, "project/default", "cell/single"}
    assert {connection.context for connection in planes.values()} == {"kind"}
    assert leases_of(settings, planes) == [(PLATFORM, "compute-manager")]


def test_project_cluster_and_context_of_the_single_cluster_can_be_set(tmp_path: Path) -> None:
    named = ("--mode=single", "--project=shop", "--cluster-name=attic", "--context=other")
    settings = load_manager_settings(kubeconfig(tmp_path / "k", "kind", "other"), *BOTH, *named)
    planes = plane_connections(settings)
    assert set(planes) == {PLATFORM, "project/shop", "cell/attic"}
    assert {connection.context for connection in planes.values()} == {"other"}


@pytest.mark.parametrize("flags", [BOTH[:1], BOTH[1:], BOTH])
def test_one_api_server_for_all_planes_needs_the_single_cluster_mode(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    settings = load_manager_settings(kubeconfig(tmp_path / "k", "kind"), *flags)
    with pytest.raises(KubeconfigError, match=r"no context for: .*hub.*--mode single"):
        plane_connections(settings)


def test_contexts_named_after_planes_configure_a_federation(tmp_path: Path) -> None:
    contexts = ("hub", "platform", "project/default", "cell/dfw", "mine")
    settings = load_manager_settings(kubeconfig(tmp_path / "k", *contexts), *BOTH)
    assert set(plane_connections(settings)) == set(contexts) - {"mine"}


def test_the_hub_can_have_its_own_kubeconfig(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "cell/dfw", "project/default")
    hub = kubeconfig(tmp_path / "h", "karmada", "two", server="https://hub:5443")
    flags = (f"--federation-kubeconfig={hub}", "--federation-context=two")
    planes = plane_connections(load_manager_settings(file, BOTH[1], *flags))
    assert (planes[HUB].context, planes[HUB].server) == ("two", "https://hub:5443")


def test_a_missing_hub_kubeconfig_is_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "cell/dfw", "project/default")
    settings = load_manager_settings(
        file, BOTH[1], f"--federation-kubeconfig={tmp_path / 'absent'}"
    )
    with pytest.raises(KubeconfigError, match="absent"):
        plane_connections(settings)


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
def test_contradicting_settings_are_rejected(
    flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in read_error(capsys, flags)


def test_health_can_be_served_on_any_address() -> None:
    assert manager_settings(MANAGER, {}).ports.health is None
    asked = manager_settings([*MANAGER, "--health-probe-bind-address=:8081"], {})
    assert asked.ports.health == ("0.0.0.0", 8081)


def test_the_webhook_needs_an_address_and_both_or_no_certificate_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert manager_settings(MANAGER, {}).ports.webhook is None
    bare = manager_settings([*MANAGER, "--webhook-address=127.0.0.1:9443"], {}).ports.webhook
    assert bare == TlsPortSettings(("127.0.0.1", 9443))
    files = ["--webhook-certificate=c", "--webhook-key=k", "--webhook-client-authority=a"]
    whole = manager_settings([*MANAGER, "--webhook-address=:9443", *files], {}).ports.webhook
    assert whole is not None
    assert (whole.certificate, whole.key) == (Path("c"), Path("k"))
    assert whole.client_authority == Path("a")
    address = "--webhook-address=127.0.0.1:9443"
    assert "go together" in read_error(capsys, [address, "--webhook-key=k"])
    assert "--webhook-address HOST:PORT" in read_error(capsys, files)
    alone = ["--no-enable-management-controllers", "--enable-propagator", address]
    assert "needs the projects" in read_error(capsys, alone)


def test_quota_is_enforced_unless_a_flag_or_the_environment_switches_it_off() -> None:
    assert manager_settings(MANAGER, {}).controllers.enforces_quota
    assert local_settings(LOCAL, {}).enforces_quota
    off = {"DATUM_ENFORCE_QUOTA": "false"}
    assert not local_settings(LOCAL, off).enforces_quota
    assert local_settings([*LOCAL, "--enforce-quota"], off).enforces_quota
    without = [*MANAGER, "--no-enforce-quota"]
    assert not manager_settings(without, {}).controllers.enforces_quota


def test_the_grace_period_of_instance_types_is_a_duration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert manager_settings(MANAGER, {}).deprecation_grace_s == 1440 * 3600
    assert local_settings(LOCAL, {}).deprecation_grace_s == 1440 * 3600
    flag = "--instance-type-deprecation-grace-period"
    assert local_settings([*LOCAL, f"{flag}=90m"], {}).deprecation_grace_s == 5400
    assert "1440h, 90m or 30s" in read_error(capsys, [f"{flag}=soon"])


# --- projects and feature gates


def servers_by_plane(settings: ManagerSettings) -> dict[str, str]:
    """Return the server of each plane."""
    return {plane: c.server for plane, c in plane_connections(settings).items()}


def test_one_api_server_can_be_project_and_platform_with_a_separate_hub(
    tmp_path: Path,
) -> None:
    file = kubeconfig(tmp_path / "k", "mine")
    hub = kubeconfig(tmp_path / "h", "karmada", server="https://hub:5443")
    flags = (BOTH[0], f"--federation-kubeconfig={hub}", "--discovery-mode=single")
    settings = load_manager_settings(file, *flags, "--project=shop")
    here = "https://127.0.0.1:6443"
    assert servers_by_plane(settings) == {
        "platform": here,
        "project/shop": here,
        "hub": "https://hub:5443",
    }
    assert project_api(settings.planes, plane_connections(settings)) is None


def test_listed_projects_have_contexts_in_their_own_file(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "mine")
    projects = kubeconfig(tmp_path / "p", "project/a", "project/b", "odd", server="https://p:1")
    hub = kubeconfig(tmp_path / "h", "karmada", server="https://hub:5443")
    settings = load_manager_settings(
        file,
        BOTH[1],
        "--cluster-name=dfw",
        "--discovery-mode=list",
        f"--federation-kubeconfig={hub}",
        f"--project-kubeconfig={projects}",
    )
    assert servers_by_plane(settings) == {
        "cell/dfw": "https://127.0.0.1:6443",
        "hub": "https://hub:5443",
        "project/a": "https://p:1",
        "project/b": "https://p:1",
    }


def test_milo_projects_are_paths_that_may_be_added_later(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "hub", "platform", server="https://milo:1")
    settings = load_manager_settings(file, BOTH[0])
    planes = plane_connections(settings)
    assert set(planes) == {HUB, PLATFORM}
    paths = project_api(settings.planes, planes)
    assert paths is not None
    assert paths.server == "https://milo:1"


def test_an_empty_list_of_projects_is_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "hub", "platform")
    with pytest.raises(KubeconfigError, match="no context for: project"):
        plane_connections(load_manager_settings(file, BOTH[0], "--discovery-mode=list"))


def test_settings_in_a_file_can_be_nested(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "discovery: {mode: list}\n"
        "leader: {election: {name: one}}\n"
        "feature-gates: {Quarantine: false, WorkloadRevisions: true}\n"
    )
    settings = manager_settings([*MANAGER, f"--config={file}"], {})
    assert settings.planes.discovery.mode == "list"
    assert settings.leader.name == "one"
    assert settings.controllers.gates == {"Quarantine": False, "WorkloadRevisions": True}


def test_a_disabled_gate_disables_its_controllers() -> None:
    shut = enabled_controllers(registry.MANAGEMENT, {"InstanceTypes": False, "Quarantine": True})
    left_out = {c.name for c in registry.MANAGEMENT} - {c.name for c in shut}
    assert left_out == {c.name for c in registry.FEATURES["InstanceTypes"]}


@pytest.mark.parametrize("gates", ["Nothing=true", "Quarantine", "Quarantine=perhaps"])
def test_invalid_gates_are_rejected(gates: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gates.partition("=")[0] in read_error(capsys, [f"--feature-gates={gates}"])


def test_limits_of_connections_can_be_set() -> None:
    assert local_settings(LOCAL, {}).listener.port_limits == PortLimits()
    changed = local_settings(
        [*LOCAL, "--connections-per-user-max=7"], {"DATUM_UNSENT_MEBIBYTES_MAX": "2"}
    )
    expected = PortLimits(connections_per_user_max=7, unsent_bytes_max=2 * 1024 * 1024)
    assert changed.listener.port_limits == expected


def test_limits_of_queued_requests_can_be_set() -> None:
    assert local_settings(LOCAL, {}).listener.flow_limits == FlowLimits()
    changed = local_settings(
        [*LOCAL, "--waiting-requests-max=9", "--request-wait-seconds-max=3"],
        {"DATUM_WAITING_REQUESTS_PER_USER_MAX": "7"},
    )
    expected = FlowLimits(flow_requests_max=7, level_requests_max=9, wait_max_s=3.0)
    assert changed.listener.flow_limits == expected


def test_a_limit_of_connections_is_a_positive_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        local_settings([*LOCAL, "--connections-max=0"], {})
    assert (
        "Invalid value for --connections-max: '0' is not a whole number from 1"
        in capsys.readouterr().err
    )
