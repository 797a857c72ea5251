"""Managers with files of kind WorkloadOperator and a separate quota credential."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from testkit.processes.local_platform import eventually
from tests.kubernetes.overlay_federation import (
    MANAGEMENT,
    PROJECT,
    QUOTA_ACCOUNT,
    OverlayFederation,
    overlay_federation,
)

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverlayFederation]:
    folder = tmp_path_factory.mktemp("configured")
    with overlay_federation(folder, has_server_configs=True) as found:
        yield found


def test_quota_claims_are_written_with_the_quota_credential_only(
    federation: OverlayFederation,
) -> None:
    flags = ("--image=x.example/web:1", "--city=DFW", "--min=2", "-y")
    done = federation.datumctl("edith", "deploy", "web", *flags)
    assert done.returncode == 0, done.stderr
    project = federation.planes[PROJECT]
    assert project.writes(QUOTA_ACCOUNT.partition("/")[2], "resourceclaims")
    for other in ("compute-manager", "compute-cell"):
        assert not project.writes(other, "resourceclaims"), other
    assert project.writes("compute-manager", "workloads", "workloaddeployments")
    done = federation.datumctl("edith", "destroy", "web", "--confirm=web")
    assert done.returncode == 0, done.stderr
    eventually(
        lambda: json.loads(project.admin("get", *_CLAIMS, "-o", "json"))["items"] == [],
        "all claims are released",
        within_s=60,
    )


_CLAIMS = ("resourceclaims.quota.miloapis.com", "--all-namespaces")


def test_the_webhook_is_served_on_the_port_of_the_file(federation: OverlayFederation) -> None:
    authority = federation.folder / MANAGEMENT / "webhook" / "ca.crt"
    trust = ssl.create_default_context(cafile=str(authority))
    url = f"https://127.0.0.1:{federation.webhook_port}/healthz"
    with urllib.request.urlopen(url, context=trust, timeout=10) as answer:
        assert answer.read() == b"ok"
