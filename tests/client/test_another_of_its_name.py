"""A patch of an object that has been replaced is a conflict, however the server says it."""

from __future__ import annotations

import pytest

from datum_compute.api.errors import Cause, Conflict, Invalid
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.server.encoding.responses import error_response


@pytest.mark.parametrize(
    ("field", "raised"), [("metadata.uid", Conflict), ("metadata.labels", Invalid)]
)
async def test_a_uid_that_is_another_is_a_conflict(field: str, raised: type[Exception]) -> None:
    async def kubernetes(_request: Request) -> Response:
        cause = Cause(field, "FieldValueInvalid", "Invalid value: field is immutable")
        return error_response(Invalid("is invalid", causes=[cause]))

    client = Client(InProcessTransport(kubernetes), prefix="", token="", agent="test")
    with pytest.raises(raised):
        await client.patch(CONFIG_MAP, Ref("default", "one"), {"metadata": {"uid": "other"}})
