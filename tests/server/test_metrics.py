"""/metrics: permissions, content, and a bounded number of series."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from datum_compute.api.http import Response
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.planes.roles import rules_by_role
from datum_compute.server.access.authentication import User
from datum_compute.server.metrics import PLANES_MAX, ServerMetrics
from testkit.api_server.definitions import definition
from testkit.api_server.granting import RBAC, cluster_binding, ensure_first_roles, user
from testkit.api_server.running_server import (
    PROJECT,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

USERS = {
    "scraper": User("scraper", (), frozenset({"platform"})),
    "unprivileged": User("unprivileged", (), frozenset({"platform"})),
    "operator": User("admin:platform", (), frozenset({"platform"})),
}


def parse_metrics(response: Response) -> Samples:
    assert response.status == 200, response.body
    assert response.content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.body.decode())
        for sample in family.samples
    }


async def scrape(server: InProcessServer) -> Samples:
    return parse_metrics(await server.ask("GET", "/metrics"))


def sample_value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, tuple(sorted(labels.items()))), 0.0)


async def test_requests_are_counted_by_verb_resource_and_code() -> None:
    async with running_server() as server:
        await server.json("POST", f"{PROJECT}{WORKLOADS}", workload())
        await server.status("GET", f"{PROJECT}{WORKLOADS}/absent")
        samples = await scrape(server)
    name, resource = "datum_apiserver_requests_total", "workloads.compute.datumapis.com"
    assert sample_value(samples, name, verb="create", resource=resource, code="201") == 1
    assert sample_value(samples, name, verb="get", resource=resource, code="404") == 1
    took = "datum_apiserver_request_duration_seconds_count"
    assert sample_value(samples, took, verb="create", resource=resource) == 1
    assert sample_value(samples, "datum_apiserver_requests_in_flight") == 1, "this very one"


async def test_open_watches_and_objects_are_counted() -> None:
    async with running_server() as server:
        await server.json("POST", f"{PROJECT}{WORKLOADS}", workload())
        watch = await server.watch(f"{PROJECT}{WORKLOADS}")
        samples = await scrape(server)
        assert sample_value(samples, "datum_apiserver_open_watches") == 1
        resource = "workloads.compute.datumapis.com"
        assert (
            sample_value(samples, "datum_store_objects", plane="project/demo", resource=resource)
            == 1
        )
        assert sample_value(samples, "datum_store_planes") == 4
        watch.stream.stop()
        del watch
        assert sample_value(await scrape(server), "datum_apiserver_open_watches") == 0


async def test_commits_and_their_writes_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = ServerMetrics(registry)
    metrics.observe_commit(3, 0.002, True)
    metrics.observe_commit(1, 0.002, True)
    metrics.observe_commit(9, 0.1, False)
    samples = parse_metrics(metrics.page())
    assert sample_value(samples, "datum_store_commit_duration_seconds_count") == 2
    assert sample_value(samples, "datum_store_commit_entries_sum") == 4
    assert sample_value(samples, "datum_store_commit_failures_total") == 1


async def test_requests_with_random_names_add_no_series() -> None:
    async with running_server() as server:
        await server.json(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()
        )
        before = len(await scrape(server))
        for number in range(50):
            await server.ask("GET", f"/apis/nowhere.example.com/v1/things{number}")
            await server.ask(f"VERB{number}", f"{PROJECT}{WORKLOADS}")
            await server.ask("GET", f"/no/such/path/{number}")
            await server.ask("GET", "/apis/example.com/v1/widgets")
        samples = await scrape(server)
    grown = len(samples) - before
    assert grown < 90, "a few label sets, each with its buckets"
    assert sample_value(
        samples, "datum_apiserver_requests_total", verb="list", resource="other", code="200"
    )
    assert not [key for key in samples if "widgets" in str(key) or "things" in str(key)]


async def test_metrics_of_many_planes_are_aggregated() -> None:
    async with running_server() as server:
        for number in range(PLANES_MAX + 20):
            await server.store.create_plane(f"project/p{number:04d}")
        for number in (0, PLANES_MAX + 10, PLANES_MAX + 11):
            prefix = PROJECT.replace("demo", f"p{number:04d}")
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
            await server.json("POST", f"{prefix}/api/v1/namespaces", body)
        samples = await scrape(server)
    assert (
        sample_value(samples, "datum_store_objects", plane="project/p0000", resource="namespaces")
        == 1
    )
    assert sample_value(samples, "datum_store_objects", plane="other", resource="namespaces") == 2
    planes = {dict(labels).get("plane") for name, labels in samples if name.endswith("_objects")}
    assert len(planes) <= PLANES_MAX + 1


async def test_metrics_need_permission() -> None:
    async with running_server(users=USERS) as server:
        await ensure_first_roles(server, "platform")
        anonymous = await server.ask("GET", "/metrics", token="")
        unprivileged = await server.ask("GET", "/metrics", token="unprivileged")
        bound = cluster_binding("scraper", "metrics-reader", user("scraper"))
        await server.json("POST", f"{RBAC}/clusterrolebindings", bound)
        reader = await server.ask("GET", "/metrics", token="scraper")
        operator = await server.ask("GET", "/metrics", token="operator")
        posted = await server.ask("POST", "/metrics", token="operator")
    codes = [r.status for r in (anonymous, unprivileged, reader, operator, posted)]
    assert codes == [401, 403, 200, 200, 405]


async def test_other_planes_have_no_metrics_page() -> None:
    async with running_server() as server:
        for prefix in (PROJECT, "/planes/hub", "/planes/cells/dfw"):
            assert (await server.ask("GET", f"{prefix}/metrics")).status == 404


def test_the_role_of_metrics_readers_permits_nothing_else() -> None:
    assert rules_by_role(PLATFORM)["metrics-reader"] == (
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    )
    assert "metrics-reader" not in rules_by_role(PlaneName("project/demo"))
