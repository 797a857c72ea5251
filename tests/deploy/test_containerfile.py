"""The image is built in stages from pinned parts, and runs as an unprivileged user.

These tests run without access to a registry, so they read the Containerfile instead of building it.
"""

from __future__ import annotations

import re
import tomllib

from tests.deploy.overlays import DEPLOY, OVERLAYS, deployment, manager_container

ROOT = DEPLOY.parent
TEXT = (DEPLOY / "Containerfile").read_text()


def read_instructions() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n", " ", TEXT)
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    pairs = (line.partition(" ") for line in lines if not line.startswith("#"))
    return [(word, rest.strip()) for word, _, rest in pairs]


def last_stage() -> list[tuple[str, str]]:
    found = read_instructions()
    start = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def test_the_last_stage_has_an_unprivileged_user_and_one_shell_step() -> None:
    users = [rest for word, rest in last_stage() if word == "USER"]
    assert users == ["65532:65532"]
    runs = [rest for word, rest in last_stage() if word == "RUN"]
    assert len(runs) == 1
    assert runs[0].startswith("install -d ")


def test_the_pods_run_as_the_user_of_the_image() -> None:
    for overlay in OVERLAYS:
        security = deployment(overlay)["spec"]["template"]["spec"]["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == "65532:65532"


def test_the_last_of_two_stages_copies_only_the_installed_program() -> None:
    stages = [rest for word, rest in read_instructions() if word == "FROM"]
    assert len(stages) == 2
    copied = [rest for word, rest in last_stage() if word == "COPY"]
    assert copied == ["--from=build /opt/datum-compute /opt/datum-compute"]


def test_the_base_image_and_installed_packages_are_pinned() -> None:
    (base,) = [rest for word, rest in read_instructions() if word == "ARG"]
    assert re.fullmatch(r"PYTHON=python:3\.11\.\d+-slim-[a-z]+", base)
    for line in re.findall(r"pip install[^&\n]*", re.sub(r"\\\n", " ", TEXT)):
        assert "--require-hashes" in line or "--no-index" in line, line


def test_no_step_downloads_files() -> None:
    for word in ("curl", "wget", "ADD ", "apt-get", "| sh", "|sh", ":latest", "sudo"):
        assert word not in TEXT


def test_the_ignore_file_allows_the_copied_files() -> None:
    allowed = {
        line[1:]
        for line in (ROOT / ".containerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for word, rest in read_instructions():
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert source.split("/")[0] in allowed
                assert (ROOT / source).exists()


def test_the_overlays_run_programs_of_the_current_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for overlay in OVERLAYS:
        container = manager_container(overlay)
        assert container["command"][0] in project["scripts"]
        assert container["image"] == f"datum-compute:{project['version']}"
