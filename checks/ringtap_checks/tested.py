# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the tests in the sources with those that ran, by name: what is missing, what was skipped and
why, and which promises hold. `scripts/test` calls it.

usage: scripts/checks tested count STEP                number of tests that a step's sources hold
       scripts/checks tested check LOGS [--skips FILE] after a run; with a list, any other skip is a fault
       scripts/checks tested promises LOGS PAGE        writes the last results into the page
"""

import re
import sys
from collections import Counter
from pathlib import Path

POOL = "crates/core/ringtap-pool"
KIT = "crates/test/ringtap-testkit/tests"
# Folders and files of each step's tests, and those of them that other steps run.
STEPS = {
    "layout": ([f"{KIT}/layout"], []),
    "unit": (["crates/*/*/src", "crates/*/*/examples"], []),
    "loom": ([f"{POOL}/tests/loom"], []),
    "shuttle": ([f"{POOL}/tests/shuttle"], []),
    "miri": ([f"{POOL}/src"], []),
    "network": (["crates/*/*/tests"], [f"{POOL}/tests/loom", f"{POOL}/tests/shuttle", KIT]),
    "testkit": ([f"{KIT}/namespace.rs"], []),
    "leftovers": ([f"{KIT}/leftovers.rs"], []),
    "seeds": (["fuzz/fuzz_targets"], []),
}
RAN = re.compile(r"^test (?:\S+::)?(\w+)(?: - should panic)? \.\.\. ", re.M)
FAILED = re.compile(r"^test (?:\S+::)?(\w+)(?: - should panic)? \.\.\. .*FAILED", re.M)
SKIPPED = re.compile(r"SKIPPED: (\S+): (.*)")
MACRO = re.compile(r"macro_rules! (\w+) \{(.*?)^\}", re.M | re.S)
ROW = re.compile(r"^(\| *\d+ \|.*\|)([^|]*)\|([^|]*)\|$")


def written(text: str) -> list[str]:
    """Names of the tests in a Rust file, with those that its macros make."""
    names = []
    for found in re.finditer(r"^ *#\[test\]\n(?: *(?:#\[.*|//.*)\n)*.*?\bfn (\$?\w+)", text, re.M):
        if not found[1].startswith("$"):
            names.append(found[1])
    for macro in MACRO.finditer(text):
        if "#[test]" in macro[2]:
            for block in re.finditer(rf"^{macro[1]}! \{{(.*?)^\}}", text, re.M | re.S):
                names += re.findall(r"^ +(\w+): ", block[1], re.M)
    return names


def sources(step: str) -> list[Path]:
    """The Rust files of a step."""
    paths, others = STEPS[step]
    found = []
    for path in paths:
        for place in sorted(Path().glob(path)):
            found += [place] if place.is_file() else sorted(place.rglob("*.rs"))
    return [one for one in found if not any(str(one).startswith(other) for other in others)]


def tests_of(step: str) -> Counter:
    """The tests of a step by name, and how often each name is there."""
    if step == "seeds":
        return Counter(path.stem for path in sources(step))
    return Counter(name for path in sources(step) for name in written(path.read_text()))


def outcomes(logs: Path) -> tuple[Counter, set[str], dict[str, str]]:
    """Tests that ran in any step, those that failed, and those that skipped themselves with the reason."""
    ran, failed, skipped = Counter(), set(), {}
    for log in sorted(logs.glob("*.log")):
        text = log.read_text(errors="replace")
        ran += Counter(RAN.findall(text))
        failed |= set(FAILED.findall(text))
        skipped |= {test.rsplit("::")[-1]: why for test, why in SKIPPED.findall(text)}
    return ran, failed, skipped


def missing(logs: Path) -> dict[str, list[str]]:
    """Per step with a log, the tests that are written and did not run."""
    found = {}
    for step in STEPS:
        log = logs / f"{step}.log"
        if log.exists():
            ran = Counter(RAN.findall(log.read_text(errors="replace")))
            found[step] = sorted((tests_of(step) - ran).elements())
    return {step: names for step, names in found.items() if names}


def allowed(text: str) -> list[tuple[re.Pattern, str]]:
    """The list of skips that are allowed: `PATTERN : REASON` on each line."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(re.compile(pattern), why) for pattern, why in (line.split(" : ", 1) for line in lines)]


def check(logs: Path, skips: Path | None) -> int:
    """Prints what is missing and what was skipped; 1 if anything is that must not be."""
    faults = 0
    for step, names in missing(logs).items():
        faults += len(names)
        more = f", and {len(names) - 8} more" if len(names) > 8 else ""
        print(f"{step}: {len(names)} tests are written and did not run: {', '.join(names[:8])}{more}")
    _, _, skipped = outcomes(logs)
    may = allowed(skips.read_text()) if skips else None
    for test, why in sorted(skipped.items()):
        reasons = [reason for pattern, reason in may or [] if pattern.search(f"{test}: {why}")]
        denied = may is not None and not reasons
        faults += denied
        print(f"skipped{' WITHOUT PERMISSION' if denied else ''}: {test}: {why}{''.join(f' ({one})' for one in reasons[:1])}")
    return int(faults > 0)


def result(evidence: list[str], ran: Counter, failed: set[str], skipped: dict[str, str]) -> str | None:
    """The last result of a promise; `None` if no test of it ran, which leaves the result before."""
    tests = [name for name in evidence if "/" not in name]
    if not any(ran[name] for name in tests):
        return None
    wrong = [f"FAILED: `{name}`" for name in tests if name in failed]
    wrong += [f"skipped: `{name}`" for name in tests if name in skipped]
    wrong += [f"did not run: `{name}`" for name in tests if not ran[name]]
    return ", ".join(wrong) or "passes"


def with_results(page: str, ran: Counter, failed: set[str], skipped: dict[str, str]) -> str:
    """The page of promises with the results of this run."""
    lines = []
    for line in page.splitlines():
        row = ROW.match(line)
        new = row and result(re.findall("`([^`]+)`", row[2]), ran, failed, skipped)
        lines.append(f"{row[1]}{row[2]}| {new} |" if new else line)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["count", step]:
            print(sum(tests_of(step).values()) if step in STEPS else "")
            return 0
        case ["check", logs]:
            return check(Path(logs), None)
        case ["check", logs, "--skips", skips]:
            return check(Path(logs), Path(skips))
        case ["promises", logs, page]:
            before = Path(page).read_text()
            after = with_results(before, *outcomes(Path(logs)))
            if after != before:
                Path(page).write_text(after)
                print(f"promises: the results in {page} have changed")
            return 0
    print(__doc__, file=sys.stderr)
    return 2
