"""``diff``: exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.objects import workload_spec
from tests.cli.runner import CliRunner
from tests.cli.world import write_kubeconfig

pytestmark = pytest.mark.usefixtures("local_platform")


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
