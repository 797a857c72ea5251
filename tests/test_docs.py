"""The documents say what the code does: generated references are fresh, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from random import Random

import pytest
import yaml

import datum_compute
from datum_compute.api.kinds import KINDS, kind_of
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import ValidationReport, compile_check, object_schema
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.metrics import process_registry
from datum_compute.app.platform import PlaneLayout, Platform, PlatformOptions
from datum_compute.app.settings.options import PROGRAMS
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.controllers.events import EVENT_ONLY_REASONS, NORMAL_PROGRESS_REASONS
from datum_compute.store.journal import MemoryJournal
from hack.generate import stale_files, write_files
from hack.reference import command_list, heading

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
API_REFERENCE = ROOT / "docs" / "reference" / "api.md"
METRICS_REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
CLI_REFERENCE = ROOT / "docs" / "reference" / "cli.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MAKE_TARGETS = {
    *(
        "setup",
        "up",
        "down",
        "test",
        "lint",
        "bench",
        "sim",
        "crds",
        "docs",
        "check",
        "lock",
        "wheel",
    ),
    *("sim-campaign", "sim-mutants", "test-crash", "test-e2e", "kubectl", "clean"),
}
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.kind))
def test_every_kind_and_each_of_its_columns_is_documented(kind: object) -> None:
    text = API_REFERENCE.read_text()
    (known,) = [k for k in KINDS if k is kind]
    section = text.split(f"\n## {heading(known)}\n")[1].split("\n## ")[0]
    assert f"`{known.api_version}`" in section
    for column in known.columns:
        assert f"| {column.name} | `{column.path}`" in section
    for part in ("spec", "status"):
        for field in structural_schema(known)["properties"].get(part, {}).get("properties", {}):
            assert f"`{part}.{field}`" in section


def test_every_command_is_documented() -> None:
    text = CLI_REFERENCE.read_text()
    missing = [name for name in command_list() if f"\n## {name}\n" not in text]
    assert not missing, f"run: make docs ({missing})"


def test_every_metric_of_a_platform_is_documented() -> None:
    registry = process_registry()
    environment = ProcessEnvironment(lambda: 0.0, lambda: "uid", lambda: "suffix", Random(1))
    options = PlatformOptions(registry=registry)
    Platform(PlaneLayout((), {}), environment, MemoryJournal(), PlaneTokens("m", {}), options)
    text = METRICS_REFERENCE.read_text()
    names = {metric.name for metric in registry.collect()}
    assert names
    assert not [name for name in sorted(names) if not re.search(rf"`{name}(_total|_info)?`", text)]


def test_every_event_reason_and_every_setting_is_documented() -> None:
    events, settings = (
        (ROOT / "docs" / "reference" / f"{name}.md").read_text() for name in ("events", "settings")
    )
    assert not [
        r for r in (*EVENT_ONLY_REASONS, *NORMAL_PROGRESS_REASONS) if f"`{r}`" not in events
    ]
    flags = [setting.flag for program in PROGRAMS for setting in program.settings]
    assert not [name for name in flags if f"`--{name}`" not in settings]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    prose = re.sub(r"`[^`\n]*`", "", text)
    targets = [link for link in LINK.findall(prose) if "://" not in link]
    broken = [link for link in targets if not (document.parent / link).exists()]
    assert text.startswith(("# ", "<!--")), f"{document} has no title"
    assert not broken, f"{document}: {broken}"


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name
)
def test_every_example_is_valid(example: Path) -> None:
    for manifest in yaml.safe_load_all(example.read_text()):
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        assert kind is not None, f"{example.name}: {manifest['kind']} is no kind of ours"
        report = ValidationReport()
        compile_check(object_schema(structural_schema(kind)))(manifest, "", report)
        assert (report.errors, report.unknown) == ([], [])


def test_make_lists_every_target_with_one_line() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    found = dict(re.findall(r"^  (\S+) +(\S.*)$", listed, flags=re.MULTILINE))
    assert set(found) >= MAKE_TARGETS
    assert len(found) == len(listed.splitlines())


def test_the_changelog_begins_with_the_unreleased_changes_and_the_version_of_the_package() -> None:
    headings = re.findall(r"^## \[(.+?)\](.*)$", CHANGELOG.read_text(), flags=re.MULTILINE)
    (unreleased, no_date), (version, date), *_ = headings
    assert (unreleased, no_date) == ("Unreleased", "")
    assert version == datum_compute.__version__
    assert re.fullmatch(r" - \d{4}-\d\d-\d\d", date)


def test_the_changelog_groups_changes_by_their_kind() -> None:
    groups = set(re.findall(r"^### (.+)$", CHANGELOG.read_text(), flags=re.MULTILINE))
    assert groups <= {"Added", "Changed", "Fixed", "Security"}


def test_the_readme_has_at_most_twelve_links() -> None:
    assert len(LINK.findall((ROOT / "README.md").read_text())) <= 12


def test_the_readme_names_targets_and_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", text))
    assert {"up", "test", "down"} <= named <= MAKE_TARGETS
    for path in re.findall(r"\bexamples/[\w./-]+", text):
        assert (ROOT / path).is_file(), path


def test_the_life_of_a_post_names_code_that_exists() -> None:
    package = ROOT / "src" / "datum_compute"
    source = "\n".join(path.read_text() for path in package.rglob("*.py"))
    page = (ROOT / "docs" / "internals" / "life-of-a-post.md").read_text()
    for name in re.findall(r"`([\w./]+)`", page):
        if "/" in name:
            assert (package / name).exists() or (ROOT / name).exists(), name
        else:
            assert re.search(rf"\b(class|def) {name.rpartition('.')[2]}\b", source), name


def test_stale_missing_and_left_over_files_are_noticed(tmp_path: Path) -> None:
    wanted = {"a.yaml": "1\n", "b.yaml": "2\n"}
    write_files(tmp_path, wanted, owned="*.yaml")
    assert stale_files(tmp_path, wanted, owned="*.yaml") == []
    (tmp_path / "a.yaml").write_text("changed\n")
    (tmp_path / "c.yaml").write_text("left over\n")
    (tmp_path / "b.yaml").unlink()
    assert stale_files(tmp_path, wanted, owned="*.yaml") == ["a.yaml", "b.yaml", "c.yaml"]
    assert stale_files(tmp_path, wanted) == ["a.yaml", "b.yaml"]
    write_files(tmp_path, wanted, owned="*.yaml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "b.yaml"]


def test_the_readme_applies_with_kubectl_what_it_deployed_before() -> None:
    """Else the file would take cities away from the workload of the quickstart."""
    readme = (ROOT / "README.md").read_text()
    deployed = re.search(r"deploy (\S+) --image=(\S+) --city=(\S+)", readme)
    applied = re.search(r"apply -f (\S+)", readme)
    assert deployed is not None
    assert applied is not None
    workload = yaml.safe_load((ROOT / applied[1]).read_text())
    (container,) = workload["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    (placement,) = workload["spec"]["placements"]
    cities = ",".join(placement["cityCodes"])
    assert (workload["metadata"]["name"], container["image"], cities) == deployed.groups()
