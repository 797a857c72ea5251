"""Components of deploy/kustomize: each adds its part to the Deployment of the manager."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datum_compute.app.settings.settings import ManagerSettings, TlsPortSettings, manager_settings
from tests.deploy.overlays import DEPLOY, Manifest, parse_manifests, run_kustomize

COMPONENTS = sorted(p.name for p in (DEPLOY / "kustomize" / "components").iterdir())
WEBHOOKS = ("webhook", "webhook-csi")
FLAGS = ["--mode=federated", "--kubeconfig=k"]
CERTIFICATE = Path("/etc/datum-compute/webhook/tls.crt")

Build = Callable[..., tuple[Manifest, ...]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return a function that builds the base with components."""

    def build_with(*components: str) -> tuple[Manifest, ...]:
        deploy = os.path.relpath(DEPLOY / "kustomize", tmp_path.resolve())
        lines = ["resources:", f"- {deploy}/base", "components:"]
        lines += [f"- {deploy}/components/{name}" for name in components]
        (tmp_path / "kustomization.yaml").write_text("\n".join(lines) + "\n")
        return parse_manifests(run_kustomize(tmp_path))

    return build_with


def pod_of(manifests: tuple[Manifest, ...]) -> Manifest:
    (deployment,) = [m for m in manifests if m["kind"] == "Deployment"]
    found: Manifest = deployment["spec"]["template"]["spec"]
    return found


def settings_of(pod: Manifest) -> ManagerSettings:
    """Return the settings of the manager in the pod."""
    (container,) = pod["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    return manager_settings(FLAGS, environment)


def volume_of(pod: Manifest, path: str) -> Any:
    (container,) = pod["containers"]
    (name,) = [m["name"] for m in container["volumeMounts"] if m["mountPath"] == path]
    (volume,) = [v for v in pod["volumes"] if v["name"] == name]
    return volume


def test_every_component_can_be_built_alone(build: Build) -> None:
    for name in COMPONENTS:
        assert build(name)


@pytest.mark.parametrize("groups", [("management",), ("cell",), ("management", "cell")])
def test_the_component_of_a_controller_group_enables_it(
    build: Build, groups: tuple[str, ...]
) -> None:
    settings = settings_of(pod_of(build(*(f"{group}-controllers" for group in groups))))
    assert settings.controllers.management == ("management" in groups)
    assert settings.controllers.cell == ("cell" in groups)


def test_the_base_enables_no_controllers(build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    pod = pod_of(build("in-cluster"))
    with pytest.raises(SystemExit):
        settings_of(pod)
    assert "nothing to run" in capsys.readouterr().err


def test_quota_credentials_are_a_mounted_secret_that_the_manager_uses(build: Build) -> None:
    pod = pod_of(build("management-controllers", "quota-credentials"))
    quota = settings_of(pod).planes.discovery.quota_kubeconfig
    assert quota is not None
    volume = volume_of(pod, str(quota.parent))
    assert volume["secret"] == {"secretName": "compute-quota-credentials"}
    without = settings_of(pod_of(build("management-controllers")))
    assert without.planes.discovery.quota_kubeconfig is None


@pytest.mark.parametrize("variant", WEBHOOKS)
def test_both_variants_of_the_webhook_serve_the_same_port(build: Build, variant: str) -> None:
    manifests = build("management-controllers", variant)
    webhook = settings_of(pod_of(manifests)).ports.webhook
    assert webhook == TlsPortSettings(
        ("0.0.0.0", 9443), CERTIFICATE, CERTIFICATE.with_name("tls.key")
    )
    kinds = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    assert {("Service", "compute-webhook"), ("NetworkPolicy", "from-api-servers")} <= kinds
    assert (("Certificate", "compute-webhook") in kinds) == (variant == "webhook")


def test_the_csi_driver_issues_the_certificate_that_the_certificate_manager_would(
    build: Build,
) -> None:
    manifests = build("management-controllers", "webhook")
    (certificate,) = [m["spec"] for m in manifests if m["kind"] == "Certificate"]
    secret = volume_of(pod_of(manifests), str(CERTIFICATE.parent))["secret"]
    assert secret == {"secretName": certificate["secretName"]}
    pod = pod_of(build("management-controllers", "webhook-csi"))
    csi = volume_of(pod, str(CERTIFICATE.parent))["csi"]
    assert (csi["driver"], csi["readOnly"]) == ("csi.cert-manager.io", True)
    attributes = {k.partition("/")[2]: v for k, v in csi["volumeAttributes"].items()}
    assert attributes["dns-names"].split(",") == certificate["dnsNames"]
    assert attributes["issuer-kind"] == certificate["issuerRef"]["kind"]
    assert attributes["issuer-name"] == certificate["issuerRef"]["name"]
    assert attributes["fs-group"] == str(pod["securityContext"]["fsGroup"])
