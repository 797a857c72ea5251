"""Unmodified Python clients for Kubernetes against a running platform.

They use the ``platform`` plane, where no controller changes a Workload. The test of a client that
is not installed is skipped; ``pip install datum-compute[clients-test]`` installs all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testkit.api_server.running_server import namespace, workload
from testkit.processes.local_platform import CITIES, LocalPlatform, allow_on_platform

pytestmark = [
    pytest.mark.e2e,
    # Ignore unclosed resources and deprecations in the libraries.
    pytest.mark.filterwarnings("ignore"),
]

GROUP, VERSION, PLURAL = "compute.datumapis.com", "v1alpha", "workloads"
API_VERSION = f"{GROUP}/{VERSION}"
PLANE = "platform"
WHERE = (GROUP, VERSION, "clients", PLURAL)
STATUS = {"conditions": [], "replicas": 3, "currentReplicas": 3}
BAD = workload("bad")
BAD["spec"]["placements"] = []


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlatform]:
    """One platform for all clients; each test uses its own object names."""
    running = LocalPlatform(tmp_path_factory.mktemp("platform") / "state")
    done = running.up("--port", "0")
    assert done.returncode == 0, done.stderr
    for city in CITIES:
        allow_on_platform(running, city)
    yield running
    running.down()


@pytest.fixture
def config(platform: LocalPlatform) -> str:
    return str(platform.kubeconfig)


def status_of(call: Callable[[], Any], error: type[Exception]) -> int:
    """Return the HTTP status code of the error that ``call`` raises."""
    with pytest.raises(error) as caught:
        call()
    return code_of(caught.value)


def code_of(error: Any) -> int:
    """Return the status code; each library has it in another attribute."""
    for owner in (error, getattr(error, "response", None), getattr(error, "status", None)):
        for name in ("status", "status_code", "code"):
            found = getattr(owner, name, None)
            if isinstance(found, int):
                return found
    raise AssertionError(f"{error!r} has no status code")


def names(items: list[Any]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in items)


# --- kubernetes


@pytest.fixture
def kubernetes_client(config: str) -> Iterator[Any]:
    library = pytest.importorskip("kubernetes", reason="kubernetes is not installed")
    client = library.config.new_client_from_config(config, context=PLANE)
    with suppress(library.client.ApiException):  # another test has created it
        library.client.CoreV1Api(client).create_namespace(namespace("clients"))
    yield client
    client.close()


def test_kubernetes_creates_lists_and_reads_typed_objects(kubernetes_client: Any) -> None:
    library = pytest.importorskip("kubernetes")
    core = library.client.CoreV1Api(kubernetes_client)
    for name in ("typed-a", "typed-b", "typed-c"):
        core.create_namespace(namespace(name, labels={"suite": "typed"}))
    selected = core.list_namespace(label_selector="suite=typed", limit=2)
    rest = core.list_namespace(
        label_selector="suite=typed", limit=2, _continue=selected.metadata._continue
    )
    found = [item.metadata.name for item in (*selected.items, *rest.items)]
    assert found == ["typed-a", "typed-b", "typed-c"]
    read = core.read_namespace("typed-a")
    assert (read.status.phase, read.metadata.creation_timestamp.tzinfo is None) == ("Active", False)
    core.delete_namespace("typed-a")
    gone = library.client.ApiException
    assert status_of(lambda: core.read_namespace("absent"), gone) == 404
    assert status_of(lambda: core.create_namespace(namespace("typed-b")), gone) == 409
    assert status_of(lambda: core.create_namespace(namespace("Not_A_Name")), gone) == 422


def test_kubernetes_patches_core_objects_with_its_default_patch(kubernetes_client: Any) -> None:
    library = pytest.importorskip("kubernetes")
    core = library.client.CoreV1Api(kubernetes_client)
    core.create_namespace(namespace("strategic"))
    patched = core.patch_namespace("strategic", {"metadata": {"labels": {"a": "b"}}})
    assert patched.metadata.labels["a"] == "b"


def test_kubernetes_creates_and_patches_config_maps(kubernetes_client: Any) -> None:
    library = pytest.importorskip("kubernetes")
    core = library.client.CoreV1Api(kubernetes_client)
    made = library.client.V1ConfigMap(
        metadata=library.client.V1ObjectMeta(name="settings"), data={"color": "blue"}
    )
    core.create_namespaced_config_map("clients", made)
    core.patch_namespaced_config_map("settings", "clients", {"data": {"size": "10"}})
    found = core.read_namespaced_config_map("settings", "clients").data
    assert found == {"color": "blue", "size": "10"}
    core.delete_namespaced_config_map("settings", "clients")


def test_kubernetes_manages_custom_objects(kubernetes_client: Any) -> None:
    library = pytest.importorskip("kubernetes")
    api, refused = library.client.CustomObjectsApi(kubernetes_client), library.client.ApiException
    for name in ("custom-a", "custom-b"):
        made = workload(name, labels={"suite": "custom"})
        assert api.create_namespaced_custom_object(*WHERE, made)["metadata"]["uid"]
    page = api.list_namespaced_custom_object(*WHERE, label_selector="suite=custom", limit=1)
    assert names(page["items"]) == ["custom-a"]
    patched = api.patch_namespaced_custom_object(
        *WHERE, "custom-a", {"metadata": {"labels": {"x": "y"}}}
    )
    assert patched["metadata"]["labels"] == {"suite": "custom", "x": "y"}
    api.patch_namespaced_custom_object_status(*WHERE, "custom-a", {"status": STATUS})
    read = api.get_namespaced_custom_object(*WHERE, "custom-a")
    assert read["status"]["replicas"] == 3
    stale = {**read, "metadata": {**read["metadata"], "resourceVersion": "1"}}
    assert (
        status_of(lambda: api.replace_namespaced_custom_object(*WHERE, "custom-a", stale), refused)
        == 409
    )
    assert status_of(lambda: api.create_namespaced_custom_object(*WHERE, BAD), refused) == 422
    api.delete_namespaced_custom_object(*WHERE, "custom-a")
    assert status_of(lambda: api.get_namespaced_custom_object(*WHERE, "custom-a"), refused) == 404


def test_kubernetes_watches_from_a_list(kubernetes_client: Any) -> None:
    library = pytest.importorskip("kubernetes")
    watch = pytest.importorskip("kubernetes.watch").Watch()
    api = library.client.CustomObjectsApi(kubernetes_client)
    since = api.list_namespaced_custom_object(*WHERE)["metadata"]["resourceVersion"]
    api.create_namespaced_custom_object(*WHERE, workload("watched"))
    api.delete_namespaced_custom_object(*WHERE, "watched")
    events = watch.stream(
        api.list_namespaced_custom_object, *WHERE, resource_version=since, timeout_seconds=10
    )
    seen = []
    for event in events:
        if event["object"]["metadata"]["name"] == "watched":
            seen.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    assert seen == ["ADDED", "DELETED"]


@pytest.fixture
def dynamic_workloads(kubernetes_client: Any, tmp_path: Path) -> Any:
    library = pytest.importorskip("kubernetes.dynamic")
    client = library.DynamicClient(kubernetes_client, cache_file=str(tmp_path / "discovery.json"))
    return client.resources.get(api_version=API_VERSION, kind="Workload")


def test_kubernetes_dynamic_client_manages_workloads(dynamic_workloads: Any) -> None:
    errors = pytest.importorskip("kubernetes.dynamic.exceptions")
    api = dynamic_workloads
    for name in ("dynamic-a", "dynamic-b"):
        api.create(body=workload(name, labels={"suite": "dynamic"}), namespace="clients")
    found = api.get(namespace="clients", label_selector="suite=dynamic")
    assert sorted(item.metadata.name for item in found.items) == ["dynamic-a", "dynamic-b"]
    merge = "application/merge-patch+json"
    body = {"metadata": {"name": "dynamic-a", "annotations": {"note": "1"}}}
    patched = api.patch(body=body, namespace="clients", content_type=merge)
    assert patched.metadata.annotations.note == "1"
    api.status.patch(
        body={"metadata": {"name": "dynamic-a"}, "status": STATUS},
        namespace="clients",
        content_type=merge,
    )
    assert api.get(name="dynamic-a", namespace="clients").status.replicas == 3
    with pytest.raises(errors.ConflictError):
        api.create(body=workload("dynamic-a"), namespace="clients")
    with pytest.raises(errors.UnprocessibleEntityError):
        api.create(body=BAD, namespace="clients")
    api.delete(name="dynamic-a", namespace="clients")
    with pytest.raises(errors.NotFoundError):
        api.get(name="dynamic-a", namespace="clients")


def test_kubernetes_dynamic_client_applies(dynamic_workloads: Any) -> None:
    api = dynamic_workloads
    for image in ("web:1", "web:2"):
        api.server_side_apply(
            body=workload("applied", image=image), namespace="clients", field_manager="tests"
        )
    found = api.get(name="applied", namespace="clients")
    containers = found.spec.template.spec.runtime.sandbox.containers
    assert [container.image for container in containers] == ["web:2"]


# --- kubernetes_asyncio


@asynccontextmanager
async def asyncio_client(config: str) -> AsyncIterator[tuple[Any, Any]]:
    library = pytest.importorskip(
        "kubernetes_asyncio", reason="kubernetes_asyncio is not installed"
    )
    client = await library.config.new_client_from_config(config, context=PLANE)
    async with client:
        with suppress(library.client.ApiException):
            await library.client.CoreV1Api(client).create_namespace(namespace("clients"))
        yield library, client


async def test_kubernetes_asyncio_manages_custom_objects(config: str) -> None:
    async with asyncio_client(config) as (library, client):
        api = library.client.CustomObjectsApi(client)
        for name in ("asyncio-a", "asyncio-b"):
            made = workload(name, labels={"suite": "asyncio"})
            await api.create_namespaced_custom_object(*WHERE, made)
        page = await api.list_namespaced_custom_object(
            *WHERE, label_selector="suite=asyncio", limit=1
        )
        assert names(page["items"]) == ["asyncio-a"]
        assert page["metadata"]["continue"]
        await api.patch_namespaced_custom_object(
            *WHERE,
            "asyncio-a",
            {"metadata": {"labels": {"x": "y"}}},
            _content_type="application/merge-patch+json",
        )
        await api.patch_namespaced_custom_object_status(
            *WHERE, "asyncio-a", {"status": STATUS}, _content_type="application/merge-patch+json"
        )
        read = await api.get_namespaced_custom_object(*WHERE, "asyncio-a")
        assert read["metadata"]["labels"] == {"suite": "asyncio", "x": "y"}
        assert read["status"]["replicas"] == 3
        for made, code in ((workload("asyncio-a"), 409), (BAD, 422)):
            with pytest.raises(library.client.ApiException) as caught:
                await api.create_namespaced_custom_object(*WHERE, made)
            assert caught.value.status == code
        await api.delete_namespaced_custom_object(*WHERE, "asyncio-a")
        with pytest.raises(library.client.ApiException) as caught:
            await api.get_namespaced_custom_object(*WHERE, "asyncio-a")
        assert caught.value.status == 404


async def test_kubernetes_asyncio_watches(config: str) -> None:
    async with asyncio_client(config) as (library, client):
        api = library.client.CustomObjectsApi(client)
        since = (await api.list_namespaced_custom_object(*WHERE))["metadata"]["resourceVersion"]
        await api.create_namespaced_custom_object(*WHERE, workload("asyncio-watched"))
        watch = pytest.importorskip("kubernetes_asyncio.watch").Watch()
        async with asyncio.timeout(30), watch:
            async for event in watch.stream(
                api.list_namespaced_custom_object, *WHERE, resource_version=since
            ):
                if event["object"]["metadata"]["name"] == "asyncio-watched":
                    break
        assert event["type"] == "ADDED"


async def test_kubernetes_asyncio_patches_custom_objects_with_a_list(config: str) -> None:
    """The default of this client for custom objects is a JSON patch."""
    async with asyncio_client(config) as (library, client):
        api = library.client.CustomObjectsApi(client)
        await api.create_namespaced_custom_object(
            *WHERE, workload("asyncio-json", labels={"a": "b"})
        )
        step = {"op": "replace", "path": "/metadata/labels/a", "value": "c"}
        patched = await api.patch_namespaced_custom_object(*WHERE, "asyncio-json", [step])
        assert patched["metadata"]["labels"] == {"a": "c"}


# --- kr8s


@pytest.fixture
def kr8s_workload(config: str) -> tuple[Any, Any]:
    """The API of the platform plane, and the class of Workloads."""
    library = pytest.importorskip("kr8s", reason="kr8s is not installed")
    objects = pytest.importorskip("kr8s.objects")
    api = library.api(kubeconfig=config, context=PLANE)
    made = objects.Namespace(namespace("clients"), api=api)
    if not made.exists():
        made.create()
    kind = objects.new_class(kind="Workload", version=API_VERSION, namespaced=True, plural=PLURAL)
    return api, kind


def test_kr8s_manages_workloads(kr8s_workload: tuple[Any, Any]) -> None:
    errors = pytest.importorskip("kr8s")
    api, kind = kr8s_workload

    def a_workload(name: str, **labels: str) -> Any:
        return kind(workload(name, namespace="clients", labels=labels), api=api)

    for name in ("kr8s-a", "kr8s-b", "kr8s-c"):
        a_workload(name, suite="kr8s").create()
    found = list(api.get(kind, namespace="clients", label_selector={"suite": "kr8s"}))
    assert sorted(item.name for item in found) == ["kr8s-a", "kr8s-b", "kr8s-c"]
    one = kind.get("kr8s-a", namespace="clients", api=api)
    one.label(x="y")
    one.patch({"metadata": {"annotations": {"note": "1"}}})
    one.patch({"status": STATUS}, subresource="status")
    one.refresh()
    assert (one.labels["x"], one.annotations["note"], one.status.replicas) == ("y", "1", 3)
    with pytest.raises(errors.ServerError) as caught:
        a_workload("kr8s-a").create()
    assert code_of(caught.value) == 409
    with pytest.raises(errors.ServerError) as caught:
        kind({**BAD, "metadata": {"name": "bad", "namespace": "clients"}}, api=api).create()
    assert code_of(caught.value) == 422
    one.delete()
    one.wait("delete", timeout=20)
    with pytest.raises(errors.NotFoundError):
        kind.get("kr8s-a", namespace="clients", api=api, timeout=1)


def test_kr8s_waits_for_a_condition(kr8s_workload: tuple[Any, Any]) -> None:
    api, kind = kr8s_workload
    one = kind(workload("kr8s-waited", namespace="clients"), api=api)
    one.create()
    condition = {
        "type": "Available",
        "status": "True",
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    one.patch({"status": {**STATUS, "conditions": [condition]}}, subresource="status")
    one.wait("condition=Available", timeout=20)
    assert one.raw["status"]["conditions"][0]["reason"] == "Tested"


def test_kr8s_watches(kr8s_workload: tuple[Any, Any]) -> None:
    api, kind = kr8s_workload
    kind(workload("kr8s-watched", namespace="clients"), api=api).create()
    seen = (e for e, found in api.watch(kind, namespace="clients") if found.name == "kr8s-watched")
    assert next(seen) == "ADDED"


# --- lightkube


@pytest.fixture
def lightkube_client(config: str) -> tuple[Any, Any]:
    library = pytest.importorskip("lightkube", reason="lightkube is not installed")
    generic = pytest.importorskip("lightkube.generic_resource")
    core = pytest.importorskip("lightkube.resources.core_v1")
    settings = library.KubeConfig.from_file(config).get(context_name=PLANE)
    client = library.Client(config=settings, field_manager="lightkube-tests")
    with suppress(library.ApiError):
        client.create(core.Namespace.from_dict(namespace("clients")))
    kind = generic.create_namespaced_resource(GROUP, VERSION, "Workload", PLURAL)
    return client, kind


def test_lightkube_manages_workloads(lightkube_client: tuple[Any, Any]) -> None:
    library = pytest.importorskip("lightkube")
    merge = pytest.importorskip("lightkube.types").PatchType.MERGE
    client, kind = lightkube_client
    for name in ("light-a", "light-b", "light-c"):
        client.create(kind(workload(name, namespace="clients", labels={"suite": "light"})))
    selected = client.list(kind, namespace="clients", labels={"suite": "light"}, chunk_size=2)
    assert sorted(item.metadata.name for item in selected) == ["light-a", "light-b", "light-c"]
    patched = client.patch(
        kind,
        "light-a",
        {"metadata": {"labels": {"x": "y"}}},
        namespace="clients",
        patch_type=merge,
    )
    assert patched.metadata.labels == {"suite": "light", "x": "y"}
    client.patch(kind.Status, "light-a", {"status": STATUS}, namespace="clients", patch_type=merge)
    assert client.get(kind, "light-a", namespace="clients")["status"]["replicas"] == 3
    again = kind(workload("light-a", namespace="clients"))
    assert status_of(lambda: client.create(again), library.ApiError) == 409
    bad = kind({**BAD, "metadata": {"name": "bad", "namespace": "clients"}})
    assert status_of(lambda: client.create(bad), library.ApiError) == 422
    client.delete(kind, "light-a", namespace="clients")
    gone = library.ApiError
    assert status_of(lambda: client.get(kind, "light-a", namespace="clients"), gone) == 404


def test_lightkube_watches_and_waits(lightkube_client: tuple[Any, Any]) -> None:
    client, kind = lightkube_client
    client.create(kind(workload("light-watched", namespace="clients")))
    events = client.watch(kind, namespace="clients", server_timeout=10)
    seen = (event for event, found in events if found.metadata.name == "light-watched")
    assert next(seen) == "ADDED"
    condition = {
        "type": "Available",
        "status": "True",
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    merge = pytest.importorskip("lightkube.types").PatchType.MERGE
    status = {"status": {**STATUS, "conditions": [condition]}}
    client.patch(kind.Status, "light-watched", status, namespace="clients", patch_type=merge)
    waited = client.wait(kind, "light-watched", namespace="clients", for_conditions=["Available"])
    assert waited.metadata.name == "light-watched"


def test_lightkube_applies(lightkube_client: tuple[Any, Any]) -> None:
    client, kind = lightkube_client
    for image in ("web:1", "web:2"):
        client.apply(kind(workload("light-applied", image=image, namespace="clients")))
    found = client.get(kind, "light-applied", namespace="clients")
    containers = found["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    assert [container["image"] for container in containers] == ["web:2"]


def test_lightkube_patches_core_objects_with_its_default_patch(
    lightkube_client: tuple[Any, Any],
) -> None:
    client, _ = lightkube_client
    core = pytest.importorskip("lightkube.resources.core_v1")
    client.create(core.Namespace.from_dict(namespace("light-strategic")))
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert client.patch(core.Namespace, "light-strategic", patch).metadata.labels["a"] == "b"
