# SPDX-License-Identifier: MIT OR Apache-2.0
"""A battery: cases as data, and the order in which they run."""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ringtap_lab.agent.captures import KINDS
from ringtap_lab.manager import aims, filters
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.inventory import InventoryError, only_known
from ringtap_lab.manager.search import Goal

FOLDER = Path(__file__).resolve().parents[1] / "batteries"
#: Starting a contender, letting it finish, and ending it.
OVERHEAD_S = 1.6
#: Trials of a search, by experience: most end at the sender's limit or beside the last answer.
SEARCH_TRIALS = 4
#: Sending a file once, or working on it.
FILE_S = 5.0
#: Dimensions with few values.
CHOICES = {"method": ("rate", "lossless", "command"), "filters": filters.SETS, "direction": ("in", "out")}
#: Filters that say the same of every traffic.
ANY_TRAFFIC = ("none", "none matches")


@dataclass(frozen=True)
class Case:
    """One point of a battery, for one contender."""

    contender: str
    method: str = "rate"
    size: int = 64
    rate: str = "max"
    load: str = "none"
    cores: int = 1
    readers: int = 1
    flows: int = 1
    #: Memory for packets that wait, where a contender has one ring or pool.
    ring_mib: int = 64
    #: A capture file, one of the battery's or with its path: sent once instead of packets of one size for `seconds`
    #: at most, or read by a command.
    file: str = ""
    #: A service of the captured machine and its client, instead of packets of the sender.
    service: str = ""
    #: `out`: the captured machine itself sends, through its network stack.
    direction: str = "in"
    #: Which filters the readers have.
    filters: str = "none"
    #: Programs that run beside: contenders with " and " between them, each with ": ARGUMENT" behind it if it takes one.
    beside: str = ""
    #: After this part of `seconds`, memory should not grow any more.
    warm_up: float = 0.0
    seconds: float = 2.0

    @property
    def key(self) -> str:
        """The same for equal cases, in every record."""
        plain = {one.name: one.default for one in fields(self)}
        return json.dumps({name: value for name, value in asdict(self).items() if value != plain[name]})

    @property
    def group(self) -> str:
        """What contenders are compared in: all but the contender and what runs beside it. All that is captured beside
        a service is compared."""
        if self.service:
            return f"{self.service}, {self.seconds:g} s"
        words = [f"file {Path(self.file).name}"] if self.file else []
        if self.method == "command":
            words = words or ["commands"]
        elif self.rate == "none":
            words += ["no traffic"]
        else:
            words = words or [f"{self.size} B"]
            words += [self.rate if self.method == "rate" else "highest rate without loss"]
        words += ["sent by the host"] * (self.direction == "out") + self._load("cores", "readers", "flows")
        return ", ".join(words if self.file or self.method == "command" else [*words, f"{self.seconds:g} s"])

    @property
    def label(self) -> str:
        """The contender, as it is named within its group."""
        words = [self.contender, *(self._load("cores", "readers") if self.service else [])]
        return ", ".join([*words, f"beside {self.beside}"] if self.beside else words)

    @property
    def programs(self) -> list[tuple[str, str]]:
        """What runs beside: names with arguments."""
        each = [one.partition(": ") for one in self.beside.split(" and ") if one]
        return [(name, argument) for name, _, argument in each]

    @property
    def names(self) -> set[str]:
        """All contenders without which it cannot be measured."""
        return {self.contender, *([self.service] if self.service else []), *(name for name, _ in self.programs)}

    def _load(self, *counts: str) -> list[str]:
        words = [f"load {self.load}"] * (self.load != "none")
        words += [f"{getattr(self, name):,} {name}" for name in counts if getattr(self, name) != 1]
        words += [f"ring of {self.ring_mib} MiB"] * (self.ring_mib != Case.ring_mib)
        return words + [f"filters: {self.filters}"] * (self.filters != "none")


def check(contender: Contender, case: Case) -> None:
    """Raises InventoryError if the contender cannot do what the case asks for."""
    whole = contender.command + (contender.server.command if contender.server else "")
    if case.load != Case.load and not contender.load:
        raise InventoryError(f"{contender.name}: has no option for load = {case.load!r}")
    if case.cores != Case.cores and "_cpus}" not in whole:
        raise InventoryError(f"{contender.name}: its command has no place for {case.cores} processors")
    if case.ring_mib != Case.ring_mib and contender.kind == "capture" and "{ring_" not in whole:
        raise InventoryError(f"{contender.name}: its command has no place for the memory of its ring")
    if case.readers > 1 and contender.kind != "sender" and not contender.many_readers:
        raise InventoryError(f"{contender.name}: several of it cannot read the same traffic")
    if case.filters != "none" and contender.kind != "sender" and "{filter}" not in contender.command:
        raise InventoryError(f"{contender.name}: its command has no place for a filter")
    if case.service and ((case.method, case.direction) != ("rate", "in") or case.filters not in ANY_TRAFFIC):
        raise InventoryError(f"{case.service}: a service has no method and no direction, and only the filters "
                             f"{' and '.join(ANY_TRAFFIC)}")  # fmt: skip
    if case.beside and case.method == "command":
        raise InventoryError(f"{contender.name}: nothing runs beside a program that runs to its end")
    if case.filters == "parts" and case.flows != case.readers:
        raise InventoryError(f"{contender.name}: filters that take parts need as many flows as readers")


@dataclass(frozen=True)
class Turn:
    """One repetition of one case."""

    case: Case
    repetition: int

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        each = (FILE_S if self.case.file or self.case.method == "command" else self.case.seconds) + OVERHEAD_S
        return each * (SEARCH_TRIALS if self.case.method == "lossless" else 1)


@dataclass(frozen=True)
class File:
    """A capture file, made before the first case: arguments of one of `agent.captures.KINDS`."""

    name: str
    kind: str
    parameters: dict[str, int]


@dataclass(frozen=True)
class Battery:
    """Cases with a name."""

    name: str
    title: str
    sender: str
    cases: tuple[tuple[Case, int], ...]
    text: str
    #: What a search looks for.
    goals: tuple[Goal, ...] = (Goal(),)
    #: Figures that its rows should reach.
    aims: tuple[aims.Aim, ...] = ()
    #: A contender that takes what comes out of the sensor again; empty if nothing should.
    receiver: str = ""
    files: tuple[File, ...] = ()

    def kinds(self) -> dict[str, str]:
        """Names of all that it uses, with the kind of each."""
        cases = [case for case, _ in self.cases]
        capture = "forward" if self.receiver else "capture"
        found = {case.contender: "command" if case.method == "command" else capture for case in cases}
        found |= {case.service or self.sender: "service" if case.service else "sender" for case in cases}
        found |= {name: "beside" for case in cases for name, _ in case.programs}
        return found | ({self.receiver: "capture"} if self.receiver else {})

    def turns(self) -> Iterator[Turn]:
        """All repetitions, contenders in turn: none is always first, or always behind the same neighbour."""
        most = max(count for _, count in self.cases)
        for repetition in range(most):
            groups: dict[str, list[Case]] = {}
            for case, count in self.cases:
                if repetition < count:
                    groups.setdefault(case.group, []).append(case)
            for cases in groups.values():
                first = repetition % len(cases)
                yield from (Turn(case, repetition) for case in cases[first:] + cases[:first])


def changed(
    one: Battery, repetitions: int | None = None, seconds: float | None = None, most_s: float = math.inf
) -> Battery:
    """A battery with other repetitions and seconds of traffic, or at most so many; files are sent whole."""
    cases = tuple(
        (case if case.file else replace(case, seconds=min(seconds or case.seconds, most_s)), repetitions or count)
        for case, count in one.cases
    )
    return replace(one, cases=cases)


def load(path: Path, contenders: dict[str, Contender]) -> Battery:
    """Reads a battery; every contender that it names must be described."""
    try:
        found = parse(path.read_text(), path.stem, str(path))
    except OSError as error:
        raise InventoryError(f"{path}: {error}") from None
    for name, kind in found.kinds().items():
        if name not in contenders or contenders[name].kind != kind:
            there = ", ".join(sorted(one.name for one in contenders.values() if one.kind == kind))
            raise InventoryError(f"{path}: there is no {kind} contender {name!r}; there are {there}")
    for case, _ in found.cases:
        check(contenders[case.contender], case)
        reads = contenders[case.contender if case.method == "command" else case.service or found.sender].command
        if bool(case.file) != ("{file}" in reads):
            raise InventoryError(f"{path}: only the sender 'ringtap send, file' sends a `file`, and nothing else")
        for name, argument in case.programs:
            if bool(argument) != ("{argument}" in contenders[name].command):
                raise InventoryError(f"{path}: beside: {name!r} takes {'no' if argument else 'an'} argument")
        if case.file and "/" not in case.file and case.file not in [one.name for one in found.files]:
            raise InventoryError(f"{path}: no [[make]] is named {case.file!r}")
    return found


def parse(text: str, name: str, where: str) -> Battery:
    """Reads the text of a battery, whatever contenders there are."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InventoryError(f"{where}: {error}") from None
    dimensions = [one.name for one in fields(Case) if one.name != "contender"]
    common = {*dimensions, "contenders", "repetitions"}
    only_known(found, {"title", "sender", "receiver", "case", "make", "goal", "aim", *common}, where)
    shared = {key: value for key, value in found.items() if key in common}
    cases: list[tuple[Case, int]] = []
    for number, entry in enumerate(found.get("case", [{}]), 1):
        entry_at = f"{where}: case {number}"
        only_known(entry, common, entry_at)
        cases += _expand({**shared, **entry}, dimensions, entry_at)
    sender = found.get("sender", "ringtap send")
    goals = _goals(found.get("goal", [{}]), where)
    wanted = aims.parse(found.get("aim", []), where)
    for aim in wanted:
        only_known({**aim.of, **(aim.by or aim.above or {})}, {"contender", *dimensions}, f"{where}: aim {aim.text!r}")
    return Battery(name, found.get("title", name), sender, tuple(cases), text, goals, wanted,
                   found.get("receiver", ""), _files(found.get("make", []), where))  # fmt: skip


def _files(entries: list[dict[str, Any]], where: str) -> tuple[File, ...]:
    for entry in entries:
        if not {"name", "kind"} <= set(entry) or entry["kind"] not in KINDS:
            raise InventoryError(f"{where}: make: needs `name`, and `kind`: {', '.join(KINDS)}")
    rest = [{key: value for key, value in entry.items() if key not in ("name", "kind")} for entry in entries]
    return tuple(File(entry["name"], entry["kind"], one) for entry, one in zip(entries, rest, strict=True))


def _goals(entries: Any, where: str) -> tuple[Goal, ...]:
    try:
        goals = tuple(Goal(**entry) for entry in entries)
        mistakes = [goal.mistake() for goal in goals if goal.mistake()]
    except TypeError as error:
        raise InventoryError(f"{where}: goal: {error}") from None
    if mistakes or not goals:
        raise InventoryError(f"{where}: goal: {(mistakes or ['there is none'])[0]}")
    return goals


def _expand(entry: dict[str, Any], dimensions: list[str], where: str) -> list[tuple[Case, int]]:
    repetitions = entry.get("repetitions", 5)
    if not entry.get("contenders") or not isinstance(repetitions, int) or repetitions < 1:
        raise InventoryError(f"{where}: needs `contenders`, and `repetitions` of at least 1")
    axes = [_values(entry, name, where) for name in dimensions if name in entry]
    named = [name for name in dimensions if name in entry]
    points = [dict(zip(named, point, strict=True)) for point in itertools.product(*axes)]
    return [(Case(contender=one, **point), repetitions) for point in points for one in entry["contenders"]]


def _values(entry: dict[str, Any], name: str, where: str) -> list[Any]:
    values = entry[name] if isinstance(entry[name], list) else [entry[name]]
    wanted = type(getattr(Case("any"), name))
    for value in values:
        fits = isinstance(value, (int, float) if wanted is float else wanted) and not isinstance(value, bool)
        if not fits or (wanted is not str and value <= 0):
            raise InventoryError(f"{where}: {name}: {value!r} is not a {wanted.__name__} above 0")
        if name in CHOICES and value not in CHOICES[name]:
            raise InventoryError(f"{where}: {name}: {value!r} is not one of {', '.join(CHOICES[name])}")
    return [wanted(value) for value in values]
