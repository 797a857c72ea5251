"""The list of exceptions to house rules, which may only get shorter.

``house_exceptions.txt`` has one line per rule and file: ``rule file item:count item:count``. For
the rule ``repeated-class`` the name of a class replaces the file. ``test_house.py`` fails if the
code has more violations than the list allows. It also fails if the code has fewer, so that the list
gets shorter with each fix.

    python -m tests.house_exceptions              print totals and differences from the list
    python -m tests.house_exceptions PATH...      print every violation below these paths
    python -m tests.house_exceptions --write      write the list again

``--write`` refuses to add violations. Violations of a file that no longer exists may move to other
files, so that modules can be moved and merged. ``--allow-new`` permits all additions.

Git merges the list with the union driver, which keeps both versions of a line that two branches
changed. The larger count applies until the list is written again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.house_rules import (
    RULES_WITH_EXCEPTIONS,
    Finding,
    Source,
    read_sources,
    read_texts,
)

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "house_exceptions.txt"
COMMAND = "python -m tests.house_exceptions --write"
_HEADER = f"""\
# Violations of house rules that exist today: rule file item:count ...
# Update: {COMMAND}
"""


class Entry(NamedTuple):
    rule: str
    subject: str
    item: str


Counts = Counter[Entry]
Findings = dict[Entry, list[str]]  # the places of each entry


def find_violations(sources: list[Source], texts: dict[str, str]) -> Findings:
    found: Findings = {}
    for name, rule in RULES_WITH_EXCEPTIONS.items():
        for finding in rule.find(sources, texts):
            found.setdefault(_entry(name, finding), []).append(finding.where)
    return found


def _entry(rule: str, finding: Finding) -> Entry:
    return Entry(rule, finding.subject, finding.item)


def find_repository_violations(root: Path = ROOT) -> Findings:
    return find_violations(read_sources(root), read_texts(root))


def count_findings(findings: Findings) -> Counts:
    return Counter({entry: len(places) for entry, places in findings.items()})


def parse_list(text: str) -> Counts:
    counts: Counts = Counter()
    for line in text.splitlines():
        if line and not line.startswith("#"):
            rule, subject, *items = line.split(" ")
            for item in items:
                name, _, count = item.rpartition(":")
                entry = Entry(rule, subject, name)
                counts[entry] = max(counts[entry], int(count))
    return counts


def render_list(counts: Counts) -> str:
    lines: dict[tuple[str, str], list[str]] = {}
    for entry, count in sorted(counts.items()):
        lines.setdefault((entry.rule, entry.subject), []).append(f"{entry.item}:{count}")
    return _HEADER + "".join(
        f"{rule} {subject} {' '.join(items)}\n" for (rule, subject), items in lines.items()
    )


def read_list() -> Counts:
    return parse_list(LIST.read_text()) if LIST.exists() else Counter()


def describe_new(allowed: Counts, findings: Findings) -> list[str]:
    """Return one sentence per entry with more violations than the list allows."""
    return [
        f"{entry.rule}: {entry.subject}: {entry.item} {len(places)} times, {allowed[entry]} allowed"
        f" ({', '.join(_lines(places))}); {RULES_WITH_EXCEPTIONS[entry.rule].advice}"
        for entry, places in sorted(findings.items())
        if len(places) > allowed[entry]
    ]


def _lines(places: list[str]) -> list[str]:
    shown = 8
    more = [f"and {len(places) - shown} more"] if len(places) > shown else []
    return [*places[:shown], *more]


def describe_stale(allowed: Counts, found: Counts) -> list[str]:
    """Return one sentence per entry with fewer violations than the list allows."""
    return [
        f"{entry.rule}: {entry.subject}: {entry.item} {found[entry]} times, {count} allowed;"
        f" run: {COMMAND}"
        for entry, count in sorted(allowed.items())
        if count > found[entry]
    ]


def rules_with_additions(
    allowed: Counts, found: Counts, is_missing: Callable[[str], bool]
) -> list[str]:
    """Return the rules of which the list would grow, other than by moves between files."""
    balance: Counter[str] = Counter()
    for entry, count in (found - allowed).items():
        balance[entry.rule] += count
    for entry, count in (allowed - found).items():
        if any("/" in name and is_missing(name) for name in (entry.subject, entry.item)):
            balance[entry.rule] -= count
    return sorted(rule for rule, count in balance.items() if count > 0)


def _print_violations(findings: Findings, paths: list[str]) -> None:
    below = tuple(path.removeprefix("./").rstrip("/") for path in paths)
    for entry, places in sorted(findings.items()):
        for place in places:
            path = place.partition(":")[0].partition(",")[0]
            if any(path == folder or path.startswith(f"{folder}/") for folder in below):
                print(f"{place}: {entry.rule}: {entry.item}")


def _print_summary(found: Counts) -> None:
    totals: Counter[str] = Counter()
    subjects = Counter(rule for rule, _ in {(entry.rule, entry.subject) for entry in found})
    for entry, count in found.items():
        totals[entry.rule] += count
    for rule in RULES_WITH_EXCEPTIONS:
        unit = "names" if rule == "repeated-class" else "files"
        print(f"{rule}: {totals[rule]} in {subjects[rule]} {unit}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house_exceptions")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="print violations below PATH")
    parser.add_argument("--write", action="store_true", help="write the list again")
    parser.add_argument("--allow-new", action="store_true", help="permit additions to the list")
    options = parser.parse_args(arguments)
    findings = find_repository_violations()
    if options.paths:
        _print_violations(findings, options.paths)
        return 0
    allowed, found = read_list(), count_findings(findings)
    new = describe_new(allowed, findings)
    _print_summary(found)
    if not options.write:
        print(*new, *describe_stale(allowed, found), sep="\n")
        return 1 if found != allowed else 0
    grown = rules_with_additions(allowed, found, lambda path: not (ROOT / path).exists())
    if grown and not options.allow_new:
        print(*(line for line in new if line.partition(":")[0] in grown), sep="\n")
        print(f"Nothing was written: {', '.join(grown)} would get more exceptions.")
        return 1
    LIST.write_text(render_list(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
