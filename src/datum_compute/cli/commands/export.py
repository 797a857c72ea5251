"""``export NAME``: print a workload as a manifest for ``deploy -f``."""

from __future__ import annotations

import click

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import CHANGED_BY, DEPLOY, ROLLBACK
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.workload.observe import find_workload

_LEFT_OUT = (CHANGED_BY, DEPLOY, ROLLBACK, "kubectl.kubernetes.io/last-applied-configuration")


@click.command(short_help="Print a workload as a manifest.")
@workload_argument
@output_option("yaml", "json")
@connection_options
@click.pass_context
def export(ctx: click.Context, name: str, output_format: str) -> None:
    """Print the workload NAME as a manifest for 'deploy -f', without the fields that the server
    sets. The manifest contains the values of environment variables.

    \b
    Example:
      datumctl compute export web > web.yaml
    """

    async def body(session: Session) -> None:
        await find_workload(session, name)  # its error suggests a similar name
        found = await session.client.get_plain(WORKLOAD, Ref(session.namespace, name))
        shown = workload_manifest(found)
        if output_format == "json":
            session.output.json(shown)
        else:
            session.output.yaml(shown)

    run_in_session(ctx, body)


def workload_manifest(workload: JsonObject) -> JsonObject:
    metadata = workload["metadata"]
    annotations = metadata.get("annotations") or {}
    kept = {
        "labels": metadata.get("labels") or {},
        "annotations": {k: v for k, v in annotations.items() if k not in _LEFT_OUT},
    }
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": metadata["name"], **{k: v for k, v in kept.items() if v}},
        "spec": {key: value for key, value in workload["spec"].items() if key != "restarts"},
    }


COMMAND = export
