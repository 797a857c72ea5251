"""The accounts of a federation on API servers that are more than one plane."""

from __future__ import annotations

from itertools import combinations

import yaml

from hack.manifests import federation_files

ACCOUNTS = {
    file: list(yaml.safe_load_all(text))
    for file, text in federation_files().items()
    if file.endswith("/accounts.yaml")
}


def test_no_file_takes_back_what_another_one_gives() -> None:
    for (_, one), (_, other) in combinations(ACCOUNTS.items(), 2):
        named = {(o["kind"], o["metadata"]["name"]): o for o in one}
        for obj in other:
            found = named.get((obj["kind"], obj["metadata"]["name"]), obj)
            assert found == obj, f"{obj['kind']} {obj['metadata']['name']} is not one and the same"
