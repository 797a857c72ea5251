"""Files of kind WorkloadOperator set what the flags of ``compute-manager`` set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from datum_compute.api.http import Request, Response
from datum_compute.api.planes import PLATFORM, path_prefix, project_plane
from datum_compute.app.manager_connections import (
    QuotaTransport,
    plane_connections,
    project_api,
    quota_connection,
)
from datum_compute.app.settings.settings import (
    ManagerSettings,
    TlsPortSettings,
    manager_settings,
)
from datum_compute.client.auth.kubeconfig import KubeconfigError
from tests.app.settings.test_settings import BOTH, kubeconfig

HEAD = "apiVersion: apiserver.config.datumapis.com/v1alpha1\nkind: WorkloadOperator\n"
SHOP = project_plane("shop")
CLAIMS = "/apis/quota.miloapis.com/v1alpha1/namespaces/default/resourceclaims"

Load = Callable[..., ManagerSettings]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.yaml"


@pytest.fixture
def load(file: Path, tmp_path: Path) -> Load:
    """Return a function that loads the settings of a manager from the text of a file."""

    def load_text(text: str, *flags: str) -> ManagerSettings:
        file.write_text(HEAD + text)
        planes = kubeconfig(tmp_path / "planes", "platform", "hub", "cell/dfw")
        basic = [f"--kubeconfig={planes}", "--state-dir=s", f"--server-config={file}"]
        return manager_settings([*basic, *(flags or BOTH[:1])], {})

    return load_text


def read_error(load: Load, capsys: pytest.CaptureFixture[str], text: str, *flags: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        load(text, *flags)
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_a_kubeconfig_whose_path_cannot_be_read_is_refused_with_its_position(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"discovery: {{projectKubeconfigPath: {'x' * 300}}}\n"
    error = read_error(load, capsys, text)
    assert "server.yaml:3:13: discovery.projectKubeconfigPath: " in error.replace("\n", "")
    assert "cannot be read: File name too long" in error.replace("\n", "")


def test_discovery_and_webhook_are_set_as_with_flags(load: Load, tmp_path: Path) -> None:
    files = {name: kubeconfig(tmp_path / name, "milo") for name in ("platform", "p", "quota")}
    settings = load(
        "metricsServer: {bindAddress: '0'}\n"
        "webhookServer:\n"
        "  port: 9555\n"
        "  clientCAName: ca.crt\n"
        "  tls: {certDir: /certificates, certName: a.crt, keyName: a.key}\n"
        "discovery:\n"
        "  mode: milo\n"
        "  clusterName: dfw\n"
        f"  discoveryKubeconfigPath: {files['platform']}\n"
        f"  projectKubeconfigPath: {files['p']}\n"
        f"  quotaKubeconfigPath: {files['quota']}\n"
    )
    discovery = settings.planes.discovery
    assert discovery.mode == "milo"
    assert settings.planes.single.cluster == "dfw"
    assert discovery.platform_kubeconfig == files["platform"]
    assert discovery.kubeconfig == files["p"]
    assert discovery.quota_kubeconfig == files["quota"]
    assert settings.ports.webhook == TlsPortSettings(
        ("0.0.0.0", 9555),
        Path("/certificates/a.crt"),
        Path("/certificates/a.key"),
        Path("/certificates/ca.crt"),
    )
    assert settings.ports.metrics is None


def test_an_empty_file_has_the_defaults_of_the_format(load: Load) -> None:
    settings = load("webhookServer: null\n")
    assert settings.planes.discovery.mode == "single"
    assert settings.ports.webhook is None
    assert settings.ports.metrics is None
    webhook = load("webhookServer: {}\n").ports.webhook
    assert webhook is not None
    assert webhook.address == ("0.0.0.0", 9443)
    assert webhook.certificate is not None
    assert webhook.certificate.parts[-3:] == ("k8s-webhook-server", "serving-certs", "tls.crt")


def test_metrics_are_served_over_tls_unless_the_file_disables_it(load: Load) -> None:
    text = "metricsServer: {{bindAddress: '127.0.0.1:8443'{more}}}\n"
    ports = load(text.format(more="")).ports
    assert ports.metrics == ("127.0.0.1", 8443)
    assert ports.metrics_tls == TlsPortSettings(("127.0.0.1", 8443))
    assert load(text.format(more=", secureServing: false")).ports.metrics_tls is None
    found = load(text.format(more=", tls: {certDir: /c}")).ports.metrics_tls
    assert found is not None
    assert (found.certificate, found.key) == (Path("/c/tls.crt"), Path("/c/tls.key"))


def test_flags_environment_and_config_take_precedence(
    file: Path, load: Load, tmp_path: Path
) -> None:
    text = "discovery: {mode: milo, clusterName: dfw}\n"
    assert load(text, BOTH[1], "--discovery-mode=list").planes.discovery.mode == "list"
    config = tmp_path / "config.yaml"
    config.write_text(f"cluster-name: ams\nserver-config: {file}\n")
    flags = ["--kubeconfig=k", "--state-dir=s", BOTH[1]]
    settings = manager_settings([*flags, f"--config={config}"], {"DATUM_DISCOVERY_MODE": "list"})
    assert settings.planes.single.cluster == "ams"
    assert settings.planes.discovery.mode == "list"
    named = manager_settings([*flags, f"--config={config}", f"--server-config={file}"], {})
    assert named.planes.single.cluster == "ams"
    assert named.planes.discovery.mode == "milo"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("discovery: {mdoe: milo}", ":3:13: discovery.mdoe: unknown field, did you mean discovery"),
        ("colour: red", ":3:1: colour: unknown field"),
        ("discovery: {mode: list}", ":3:13: discovery.mode: must be one of single, milo, not list"),
        ("discovery: {mode: [milo]}", ":3:13: discovery.mode: must be a string, not ['milo']"),
        ("discovery: milo", ":3:1: discovery: must be a mapping, not 'milo'"),
        ("discovery: {clusterName: No Such}", ":3:13: discovery.clusterName: "),
        (
            "discovery: {quotaKubeconfigPath: /absent/quota}",
            ":3:13: discovery.quotaKubeconfigPath: /absent/quota is not a file",
        ),
        (
            "discovery:\n  internalServiceDiscovery: true",
            ":4:3: discovery.internalServiceDiscovery: is not supported",
        ),
        ("webhookServer: {port: '9443'}", ":3:17: webhookServer.port: must be a number"),
        ("webhookServer: {port: 70000}", ":3:17: webhookServer.port: must be a number from 0"),
        (
            "webhookServer: {host: localhost}",
            ":3:17: webhookServer.host: 'localhost:9443' is not ADDRESS:PORT",
        ),
        (
            "webhookServer:\n  tls: {secretRef: {name: a}}",
            ":4:9: webhookServer.tls.secretRef: is not supported: mount the Secret",
        ),
        (
            "metricsServer: {bindAddress: nowhere}",
            ":3:17: metricsServer.bindAddress: 'nowhere' is not ADDRESS:PORT",
        ),
        (
            "featureFlags: {enableReferencedDataGate: false}",
            "featureFlags.enableReferencedDataGate: cannot be false",
        ),
        (
            "referencedData: {perObjectLimitBytes: 1}",
            "referencedData.perObjectLimitBytes: cannot be changed: the limit is 262144",
        ),
    ],
)
def test_the_error_of_a_wrong_field_names_it(
    load: Load, capsys: pytest.CaptureFixture[str], file: Path, text: str, complaint: str
) -> None:
    message = read_error(load, capsys, text)
    assert complaint in message
    assert str(file) in message


def test_a_file_of_another_kind_is_rejected(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--kubeconfig=k", "--state-dir=s", BOTH[0], f"--server-config={file}"]
    for text, complaint in (
        ("kind: WorkloadOperator\n", f"{file}: apiVersion: is missing"),
        (HEAD.replace("WorkloadOperator", "Workload"), f"{file}:2:1: kind: must be Workload"),
        (HEAD.replace("v1alpha1", "v1"), f"{file}:1:1: apiVersion: must be apiserver.config"),
        ("a: [", "cannot be read"),
    ):
        file.write_text(text)
        with pytest.raises(SystemExit):
            manager_settings(flags, {})
        assert complaint in capsys.readouterr().err


def test_config_show_prints_the_field_that_a_setting_comes_from(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(HEAD + "discovery:\n  mode: milo\n")
    with pytest.raises(SystemExit):
        manager_settings(["config", "show", f"--server-config={file}"], {})
    shown = capsys.readouterr().out.splitlines()
    (line,) = (line for line in shown if line.startswith("discovery-mode"))
    assert line.endswith(f"{file}:4:3: discovery.mode")


def test_the_platform_can_have_its_own_kubeconfig(load: Load, tmp_path: Path) -> None:
    discovery = kubeconfig(tmp_path / "d", "milo", server="https://discovery:1")
    projects = kubeconfig(tmp_path / "p", "milo", server="https://projects:1")
    settings = load(
        f"discovery: {{mode: milo, discoveryKubeconfigPath: {discovery}, "
        f"projectKubeconfigPath: {projects}}}\n"
    )
    planes = plane_connections(settings)
    assert planes[PLATFORM].server == "https://discovery:1"
    api = project_api(settings.planes, planes)
    assert api is not None
    assert api.server == "https://projects:1"


# --- the quota credential


def test_the_projects_of_a_cell_use_the_quota_kubeconfig(load: Load, tmp_path: Path) -> None:
    quota = kubeconfig(tmp_path / "q", "milo", server="https://quota:1")
    settings = load(f"discovery: {{mode: milo, quotaKubeconfigPath: {quota}}}\n", BOTH[1])
    planes = plane_connections(settings)
    api = project_api(settings.planes, planes)
    assert api is not None
    assert api.server == "https://quota:1"
    assert quota_connection(settings.planes, SHOP) is None, "no second connection is needed"


def test_the_quota_kubeconfig_of_a_manager_is_only_for_projects(load: Load, tmp_path: Path) -> None:
    quota = kubeconfig(tmp_path / "q", "milo", server="https://quota:1")
    text = f"discovery: {{mode: MODE, quotaKubeconfigPath: {quota}}}\n"
    milo = load(text.replace("MODE", "milo")).planes
    found = quota_connection(milo, SHOP)
    assert found is not None
    assert (found.server, found.path_prefix) == ("https://quota:1", path_prefix(SHOP))
    assert quota_connection(milo, PLATFORM) is None
    single = quota_connection(load(text.replace("MODE", "single")).planes, SHOP)
    assert single is not None
    assert single.path_prefix == "", "the API server of the current context is the project"


def test_a_context_of_the_quota_kubeconfig_can_name_the_project(load: Load, tmp_path: Path) -> None:
    quota = kubeconfig(tmp_path / "q", "other", "project/shop", server="https://quota:1/shop")
    settings = load(f"discovery: {{mode: milo, quotaKubeconfigPath: {quota}}}\n")
    found = quota_connection(settings.planes, SHOP)
    assert found is not None
    assert (found.context, found.path_prefix) == ("project/shop", "/shop")


def test_a_missing_quota_kubeconfig_is_an_error_at_the_start(load: Load, tmp_path: Path) -> None:
    settings = load("", BOTH[0], f"--quota-kubeconfig={tmp_path / 'absent'}")
    with pytest.raises(KubeconfigError, match="absent"):
        plane_connections(settings)


class RecordingTransport:
    """Records requests, and answers each with its own name."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(200, self.name)


async def test_only_requests_for_quota_objects_use_the_quota_credential(
    load: Load, tmp_path: Path
) -> None:
    quota_file = kubeconfig(tmp_path / "q", "milo", server="https://quota:1")
    settings = load(f"discovery: {{mode: milo, quotaKubeconfigPath: {quota_file}}}\n").planes
    connection = plane_connections(load("discovery: {mode: milo}"))[PLATFORM]
    found = quota_connection(settings, SHOP)
    assert found is not None
    inner, quota = RecordingTransport(b"inner"), RecordingTransport(b"quota")
    transport = QuotaTransport(inner, connection, quota, found)
    headers = {"authorization": "Bearer of-the-manager", "accept": "application/json"}
    sent = await transport.send(Request("GET", CLAIMS, headers=headers))
    assert sent.body == b"quota"
    (request,) = quota.requests
    assert request.path == path_prefix(SHOP) + CLAIMS
    assert request.headers == {"authorization": "Bearer t", "accept": "application/json"}
    other = Request("GET", "/apis/compute.datumapis.com/v1alpha/workloads", headers=headers)
    assert (await transport.send(other)).body == b"inner"
    assert inner.requests == [other]
