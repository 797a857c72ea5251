"""Workloads from files and flags: strict validation, suggestions, and minimal changes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.cli.environment import FILE_BYTES_MAX, read_file, read_stdin
from datum_compute.cli.errors import UsageError
from datum_compute.cli.workload import manifest as yamldocuments
from datum_compute.cli.workload.edits import flags_edit, manifest_edit
from datum_compute.cli.workload.manifest import parse_manifests, read_documents
from datum_compute.cli.workload.request import WorkloadFlags
from tests.cli.objects import workload_spec


def document(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": "web", "labels": {"tier": "front"}},
        "spec": workload_spec("DFW"),
        **changes,
    }


def parse(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else yaml.safe_dump(value)
    (manifest,) = parse_manifests(text, "web.yaml")
    return manifest


def test_yaml_and_json_say_the_same() -> None:
    assert parse(yaml.safe_dump(document())) == parse(json.dumps(document()))


def test_an_object_read_from_the_server_can_be_deployed() -> None:
    metadata = {**document()["metadata"], "uid": "u", "resourceVersion": "7", "generation": 3}
    live = document(metadata=metadata, status={"replicas": 4})
    assert parse(live) == parse(document())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (document(kind="Deployment"), "kind is 'Deployment'"),
        (document(apiVersion="v1"), "apiVersion is 'v1'"),
        (document(metadata={}), "metadata.name is missing"),
        (document(metadata={"name": "web", "labels": {"version": 1}}), "metadata.labels must map"),
        (document(spec={}), "spec.template: Required value"),
        ("a: [", "neither YAML nor JSON"),
        ("just text", "is not an object"),
        ("", "contains no document"),
        ("a: 1\na: 2\n", 'web.yaml:2:1: duplicate key "a"'),
        (document(metadata={"name": "web", "lables": {}}), "unknown field, did you mean labels?"),
    ],
)
def test_an_invalid_workload_is_refused_with_the_position(text: Any, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert expected in caught.value.message
    assert "web.yaml" in caught.value.message


def test_an_unknown_field_is_an_error_with_a_suggestion() -> None:
    spec = workload_spec("DFW")
    spec["placements"][0]["cityCode"] = ["DFW"]
    with pytest.raises(UsageError) as caught:
        parse(document(spec=spec))
    assert "spec.placements[0].cityCode: unknown field, did you mean cityCodes?" in str(
        caught.value
    )


def test_all_problems_are_reported_together() -> None:
    spec = workload_spec("DFW", minimum=0)
    spec["extra"] = 1
    with pytest.raises(UsageError) as caught:
        parse(document(spec=spec))
    assert "minReplicas" in caught.value.message
    assert "spec.extra" in caught.value.message


# --- edits

LIVE: dict[str, Any] = {
    "metadata": {"name": "web", "resourceVersion": "7", "labels": {"theirs": "1"}},
    "spec": {
        "template": {
            "metadata": {"annotations": {"restarted": "once"}},
            "spec": {
                "runtime": {
                    "sandbox": {
                        "containers": [
                            {
                                "name": "app",
                                "image": "web:1",
                                "command": ["serve"],
                                "env": [{"name": "A", "value": "1"}],
                                "newer": "field",
                            },
                            {"name": "side", "image": "s"},
                        ]
                    },
                    "resources": {"instanceType": "big"},
                }
            },
        },
        "placements": [
            {"name": "default", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 2}},
            {"name": "east", "cityCodes": ["IAD"], "scaleSettings": {"minReplicas": 1}},
        ],
    },
}


def edited(live: dict[str, Any] | None, **flags: Any) -> dict[str, Any]:
    return flags_edit(WorkloadFlags(name="web", **flags), "default", "deploy web ...")(live)


def test_an_image_changes_the_image_and_nothing_else() -> None:
    changed = edited(LIVE, image="web:2")
    containers = changed["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    assert containers[0].pop("image") == "web:2"
    containers[0]["image"] = "web:1"
    assert changed == LIVE


def test_cities_and_minimum_change_the_default_placement_only() -> None:
    changed = edited(LIVE, cities=("DFW", "ORD"), minimum=5)["spec"]["placements"]
    assert changed[0] == {
        "name": "default",
        "cityCodes": ["DFW", "ORD"],
        "scaleSettings": {"minReplicas": 5},
    }
    assert changed[1] == LIVE["spec"]["placements"][1]


def test_variables_are_added_and_changed_by_name() -> None:
    changed = edited(LIVE, env=(("A", "2"), ("B", "3")))
    container = changed["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    assert container["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    assert container["newer"] == "field"


def test_flags_equal_to_the_current_state_change_nothing() -> None:
    assert edited(LIVE, image="web:1", cities=("DFW",), minimum=2, env=(("A", "1"),)) == LIVE
    assert edited(LIVE) == LIVE


def test_an_edit_does_not_change_its_argument() -> None:
    before = json.dumps(LIVE)
    edited(LIVE, image="web:2", minimum=9)
    assert json.dumps(LIVE) == before


def test_a_new_workload_needs_image_and_city() -> None:
    with pytest.raises(UsageError, match="needs --image and --city"):
        edited(None)
    with pytest.raises(UsageError, match="needs --city"):
        edited(None, image="web:1")


def test_a_new_workload_is_valid() -> None:
    made = edited(None, image="web:1", cities=("DFW",), port=80, env=(("A", "1"),))
    assert parse(made)["spec"]["placements"][0]["scaleSettings"] == {
        "minReplicas": 1,
        "instanceManagementPolicy": "OrderedReady",
        "progressDeadlineSeconds": 600,
    }


@pytest.mark.parametrize(
    ("flags", "what"), [({"image": "x"}, "container named 'app'"), ({"minimum": 2}, "placement")]
)
def test_flags_are_refused_for_a_workload_without_the_field(
    flags: dict[str, Any], what: str
) -> None:
    foreign = json.loads(json.dumps(LIVE).replace('"app"', '"main"').replace('"default"', '"x"'))
    with pytest.raises(UsageError, match=what):
        edited(foreign, **flags)


def test_a_file_that_differs_only_by_defaults_changes_nothing() -> None:
    manifest = parse(document(metadata={"name": "web"}))
    live = manifest_edit(manifest, "default")(None)
    live["metadata"]["resourceVersion"] = "7"
    lower = parse(document(metadata={"name": "web"}, spec=workload_spec("dfw")))
    assert manifest_edit(lower, "default")(live) == live


def test_a_file_replaces_the_spec_and_adds_its_labels() -> None:
    changed = manifest_edit(parse(document()), "default")(LIVE)
    assert [p["name"] for p in changed["spec"]["placements"]] == ["default"]
    assert changed["metadata"]["labels"] == {"theirs": "1", "tier": "front"}
    assert changed["metadata"]["resourceVersion"] == "7"


def test_anchors_aliases_and_merge_keys_are_read() -> None:
    text = yaml.safe_dump(document())
    text += "\n---\n"
    text = text.replace("labels:\n    tier: front", "labels: &l {tier: front}\n  annotations: *l")
    (manifest,) = parse_manifests(text, "web.yaml")
    assert manifest["metadata"]["annotations"] == {"tier": "front"}


def test_the_position_of_a_key_with_dots_is_found() -> None:
    text = yaml.safe_dump(document()).replace("tier: front", "a.b/c: x\n    a: {b: 1}")
    with pytest.raises(UsageError, match=r"web.yaml:\d+:3: metadata.labels must map"):
        parse(text)
    (read,) = read_documents("a:\n  b.c: 1\n  b:\n    c: [1, 2]\n", "x")
    assert [read.place(p) for p in ("a.b.c", "a.b", "a.b.c[1]", "a.z.z", "z")] == [
        (2, 3),
        (3, 3),
        (2, 3),
        (1, 1),
        (1, 1),
    ]


HOSTILE = {
    "aliases": "\n".join(
        ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    ),
    "merged aliases": "\n".join(
        ["a0: &a0 {x: 1}"]
        + [
            f"a{n}: &a{n} {{<<: *a{n - 1}, b: [{', '.join([f'*a{n - 1}'] * 9)}]}}"
            for n in range(1, 20)
        ]
    ),
    "one long text many times": f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]",
    "deep": "[" * 100_000,
    "deep block": "- " * 100_000,
    "many values": "a: [" + "1," * 300_000 + "]",
    "many documents": "---\na: 1\n" * 2000,
    "long key": f"? {'x' * 5000}\n: 1",
    "too long": "a: " + "x" * 4_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_document_that_is_too_expensive_to_parse_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yamldocuments, "_LIMITS", replace(yamldocuments._LIMITS, values_max=5000))
    with pytest.raises(UsageError, match=r"more than|nested|longer than|no complete value"):
        parse_manifests(HOSTILE[name], "web.yaml")


def test_only_the_allowed_size_of_stdin_and_of_a_device_is_read() -> None:
    endless = EndlessText()
    with pytest.raises(UsageError, match="stdin is larger than"):
        read_stdin(endless)
    assert endless.chars_read == FILE_BYTES_MAX + 1
    with pytest.raises(UsageError, match="zero is larger than 1000 bytes"):
        read_file(Path("/dev/zero"), "zero", 1000)


class EndlessText(io.StringIO):
    chars_read = 0

    def read(self, size: int | None = -1, /) -> str:
        assert size is not None
        assert size >= 0
        self.chars_read += size
        return "x" * size
