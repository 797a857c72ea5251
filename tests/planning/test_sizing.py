"""How large an instance is for its quota: which source counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.instance import (
    Container,
    ContainerResources,
    ResourceAmounts,
    Runtime,
    RuntimeResources,
    Sandbox,
)
from datum_compute.api.instancetype import (
    InstanceType,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.quantities import mebibytes, millicores
from datum_compute.planning.quota.claims import Size, requests_of, size_of

HUGE = InstanceType(spec=InstanceTypeSpec(resources=InstanceTypeResources(cpu=16, memory="64Gi")))


def runtime(
    *limits: ResourceAmounts,
    type_: str = "datumcloud/d1-standard-2",
    requests: ResourceAmounts | None = None,
) -> Runtime:
    containers = [
        Container(name=f"c{n}", image="web:1", resources=ContainerResources(limits=amounts))
        for n, amounts in enumerate(limits or (ResourceAmounts(),))
    ]
    resources = RuntimeResources(instance_type=type_, requests=requests or ResourceAmounts())
    return Runtime(sandbox=Sandbox(containers=containers), resources=resources)


BOTH = ResourceAmounts(cpu="250m", memory="512Mi")
HALF = ResourceAmounts(cpu=4)


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        pytest.param(runtime(BOTH, BOTH), Size(500, 1024), id="limits add up"),
        pytest.param(
            runtime(BOTH, HALF, requests=BOTH), Size(250, 512), id="some limits are no limits"
        ),
        pytest.param(runtime(requests=HALF), Size(1000, 2048), id="half a request is none"),
        pytest.param(runtime(), Size(1000, 2048), id="an old name of a type"),
        pytest.param(runtime(type_="d1-standard-8"), Size(4000, 8192), id="a type"),
        pytest.param(runtime(type_="huge"), Size(16000, 65536), id="a type of the catalogue"),
        pytest.param(runtime(type_="unheard-of"), None, id="an unknown type"),
    ],
)
def test_the_first_complete_source_counts(asked: Runtime, size: Size | None) -> None:
    assert size_of(asked, lambda name: HUGE if name == "huge" else None) == size


def test_an_instance_of_unknown_size_counts_as_one_instance() -> None:
    assert [(r.resource_type, r.amount) for r in requests_of(None)] == [
        ("compute.datumapis.com/instances", 1)
    ]


@pytest.mark.parametrize(
    ("text", "amount"), [("500m", 500), (2, 2000), ("1.5", 1500), ("0.0001", 1), ("1m", 1)]
)
def test_processors_in_thousandths(text: int | str, amount: int) -> None:
    assert millicores(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("512Mi", 512), ("2Gi", 2048), (1 << 20, 1), (1, 1), ("1.5Gi", 1536), ("1G", 954), ("1Ki", 1)],
)
def test_memory_in_mebibytes(text: int | str, amount: int) -> None:
    assert mebibytes(text) == amount


@given(st.integers(1, 10**9), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
def test_nobody_gets_more_than_is_counted(number: int, unit: str) -> None:
    factors = {"": 1, "k": 10**3, "M": 10**6, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    asked_bytes = number * factors[unit]
    assert (mebibytes(f"{number}{unit}") << 20) - asked_bytes in range(1 << 20)
