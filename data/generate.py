#!/usr/bin/env python3
"""Make the bundled stores, row for row the same every time.

    python data/generate.py                 write three_hundred_issues.db, two_years.db,
                                            looked_up.db and the folder odek beside this file, the
                                            last two with logs of what was read of them
    python data/generate.py FOLDER          write them there
    python data/generate.py FOLDER AGENTS   write a store for each of so many agents there instead

All are simulated: README.md beside this file says after what. Standard library only. Every draw
goes through ``random()`` of a seeded generator, the one method whose sequence Python promises to
keep.
"""

import json
import random
import sqlite3
import sys
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from math import ceil, exp, log
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent

SCHEMA = """
CREATE TABLE IF NOT EXISTS memory_items (
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
);
"""

# How far back a reference reaches, in the prunable active memories stored since: log-normal.
MEDIAN_DISTANCE = 40
P90_DISTANCE = 500
SIGMA = log(P90_DISTANCE / MEDIAN_DISTANCE) / NormalDist().inv_cdf(0.9)
NEEDS = (0.905, 0.991)
"""A draw below the first names no earlier issue, below the second one, else two."""

# What sessions look up: what was looked up before, the more lately the likelier; else any memory.
AGAIN = 0.7
FADES = timedelta(days=14)
"""After which time a look-up brings only half as many others."""
REACH = (0.75, 0.19)
"""How far back the others lie, as a power of what was written: mean and standard deviation."""

BY_TIMES = (1, 2, 3, 5), (0.4, 1.6, 2.0, 3.0, 5.0)
"""Days on which a memory was found, and how likely it is to be found next, after fewer, after so
many: what, drawn from, comes out as measured in public stores."""
BY_QUARTER = (2.6, 0.9, 0.45, 0.4)
"""The same by age, the newest quarter first."""


class Row(NamedTuple):
    """One row of ``memory_items``, its columns in order."""

    memory_id: str
    kind: str
    title: str
    body: str
    tags_json: str
    source_event_id: str | None
    source_sequence: int | None
    source_task_ref: str
    authored_by: str
    confidence: float
    created_at: str
    supersedes_json: str
    evidence_refs_json: str
    superseded_by: str | None = None


class Links(NamedTuple):
    """What a row has to do with earlier ones."""

    needs: Sequence[int] = ()
    replaces: str | None = None


NO_LINKS = Links()


class Dice:
    """Draws that depend on nothing but the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with `probability`."""
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        """Return one of `choices`, each as likely."""
        return choices[int(self.random() * len(choices))]

    def weighted(self, weights: Iterable[float]) -> int:
        """Return the index of one weight, as likely as it is heavy."""
        sums = list(accumulate(weights))
        return bisect(sums, self.random() * sums[-1])

    def normal(self) -> float:
        """Return a standard normal number."""
        return NormalDist().inv_cdf(max(self.random(), 1e-12))

    def distance(self) -> int:
        """Return how far back a reference reaches; 1 is the newest prunable active memory."""
        return max(1, ceil(MEDIAN_DISTANCE * exp(SIGMA * self.normal())))


class LookUps:
    """What sessions read of a memory: the same ones again and again, most of it never."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.made: list[tuple[datetime, str]] = []

    def read(self, written: Sequence[str], at: datetime) -> None:
        """Read one of the memories that were written by then."""
        if self.made and self.dice.chance(AGAIN):
            lately = [2 ** -((at - before) / FADES) for before, _ in self.made]
            found = self.made[self.dice.weighted(lately)][1]
        else:
            reach = min(1.0, abs(REACH[0] + REACH[1] * self.dice.normal()))
            found = written[-max(1, int(len(written) ** reach))]
        self.made.append((at, found))

    def as_log(self) -> bytes:
        """Return the access log, one line a read."""
        lines = [{"memory_id": found, "at": at.isoformat()} for at, found in self.made]
        return "".join(json.dumps(line) + "\n" for line in lines).encode()


class Searches(LookUps):
    """What sessions find when they search: likelier what was found before, and what is new."""

    def __init__(self, dice: Dice) -> None:
        super().__init__(dice)
        self.days: dict[str, set[date]] = {}

    def read(self, written: Sequence[str], at: datetime) -> None:
        """Read one of the memories that were written by then."""
        days, weights = BY_TIMES
        found = written[
            self.dice.weighted(
                weights[bisect(days, len(self.days.get(name, ())))]
                * BY_QUARTER[4 * age // len(written)]
                for age, name in zip(reversed(range(len(written))), written, strict=True)
            )
        ]
        self.days.setdefault(found, set()).add(at.date())
        self.made.append((at, found))


class Project:
    """The memory of one invented project while it is being written."""

    def __init__(self, *, seed: int, moments: Iterator[datetime]) -> None:
        self.dice = Dice(seed)
        self.moments = moments
        self.phrases = json.loads((HERE / "phrases.json").read_text(encoding="utf-8"))
        self.rows: dict[str, Row] = {}
        self.open: list[
            tuple[str, int]
        ] = []  # prunable and active, oldest first: (memory_id, issue)
        self.decisions: list[tuple[str, dict[str, Any]]] = []  # active ones and what they said
        self.skills: dict[
            int, tuple[str, int]
        ] = {}  # which skill -> (its active memory_id, revision)

    def merged(self, issue: int, *, replaces: str | None = None) -> str:
        """Write the outcome of an issue that was merged, perhaps replacing an earlier failure."""
        memory_id = self._episode("merged", issue, replaces=replaces)
        if replaces is not None:
            self._supersede(replaces, memory_id)
        return memory_id

    def failed(self, issue: int, attempt: int = 1, *, replaces: str | None = None) -> str:
        """Write the outcome of an attempt that failed, perhaps replacing the one before."""
        memory_id = self._episode("failed", issue, suffix=f"-{attempt}", replaces=replaces)
        if replaces is not None:
            self._supersede(replaces, memory_id)
        return memory_id

    def rejected_path(self, issue: int) -> None:
        """Write an approach that was tried and turned down."""
        slots = self._scene(issue)
        words = self.phrases["rejected"]
        approach, why, axis = self.dice.pick(words["approaches"])
        slots |= {"approach": approach, "approach_cap": _capital(approach)}
        slots["why"] = why.format(**slots)
        self._write(
            (f"episodic-rejected-{issue}", "episodic"),
            (
                self.dice.pick(words["titles"]).format(**slots),
                self.dice.pick(words["body"]).format(**slots),
            ),
            tags=("rejected-path", f"axis:{axis}"),
            issue=issue,
        )

    def decision(self, issue: int, *, revise: float = 0.0) -> None:
        """Write a decision; with probability `revise` it replaces an earlier one."""
        number = 1 + sum(row.kind == "semantic" for row in self.rows.values())
        memory_id = f"semantic-decision-{number}"
        if self.decisions and self.dice.chance(revise):
            old, slots = self.decisions.pop(self.dice.between(0, len(self.decisions) - 1))
            slots |= {"thing": self._scene(issue)["thing"], "old": old}
            title = "{Option} for {area}, with an exception"
            body = (
                "Replaces {old}: still {option}, but not for {thing}, where {other_option} stays."
            )
        else:
            old = None
            slots = self._scene(issue)
            option, other, why = self.dice.pick(self.phrases["decisions"])
            slots |= {"option": option, "Option": _capital(option), "other_option": other}
            slots["why"] = why.format(**slots)
            title = "{Option} for {area}, not {other_option}"
            body = self.dice.pick(self.phrases["decision_body"])
        texts = title.format(**slots), body.format(**slots)
        self._write(
            (memory_id, "semantic"),
            texts,
            tags=("decision",),
            issue=issue,
            links=Links(replaces=old),
        )
        if old is not None:
            self._supersede(old, memory_id)
        self.decisions.append((memory_id, slots))

    def skill(self, issue: int, which: int) -> None:
        """Write skill number `which`, or its next revision, which replaces the one before."""
        title, body = self.phrases["skills"][which]
        old, revision = self.skills.get(which, (None, 0))
        memory_id = f"procedural-skill-{which + 1}-v{revision + 1}"
        notes = self.phrases["skill_revisions"]
        added = [notes[(which + k) % len(notes)] for k in range(revision)]
        self._write(
            (memory_id, "procedural"),
            (
                f"{title} (revision {revision + 1})" if revision else title,
                " ".join([body, *added]),
            ),
            tags=("skill", "validated"),
            issue=issue,
            links=Links(replaces=old),
        )
        if old is not None:
            self._supersede(old, memory_id)
        self.skills[which] = memory_id, revision + 1

    def _episode(
        self, outcome: str, issue: int, *, suffix: str = "", replaces: str | None = None
    ) -> str:
        """Write one episode and whatever earlier issues it turned out to need."""
        slots = self._scene(issue)
        words = self.phrases[outcome]
        needs = self._needs(besides=issue)
        memory_id = f"episodic-{outcome}-{issue}{suffix}"
        self._write(
            (memory_id, "episodic"),
            (
                self.dice.pick(words["titles"]).format(**slots),
                self._body(words, slots, needs=needs),
            ),
            tags=(outcome, f"area:{slots['area']}"),
            issue=issue,
            links=Links(needs, replaces),
        )
        self.open.append((memory_id, issue))
        return memory_id

    def _needs(self, *, besides: int) -> list[int]:
        """Return the earlier issues that the next row names, by the law of distances."""
        found = set()
        for _ in range(bisect(NEEDS, self.dice.random())):
            distance = self.dice.distance()
            if distance <= len(self.open):
                found.add(self.open[-distance][1])
        return sorted(found - {besides})

    def _scene(self, issue: int) -> dict[str, Any]:
        """Choose what a memory is about: part of the system, file, numbers."""
        dice = self.dice
        areas = self.phrases["areas"]
        area = dice.pick(list(areas))
        other = dice.pick(list(areas))
        slow = dice.between(180, 4200)
        return {
            "issue": issue,
            "area": area,
            "thing": dice.pick(areas[area]["things"]),
            "file": dice.pick(areas[area]["files"]),
            "other": dice.pick(areas[other]["things"]),
            "n": dice.between(3, 60),
            "ms": slow,
            "ms2": slow // dice.between(2, 9),
        }

    def _body(self, words: dict[str, list[str]], slots: dict[str, Any], *, needs: list[int]) -> str:
        """Write one to seven sentences: what, why, what to remember, how it was checked."""
        parts = ("what", "cause", "lesson", "check", "what", "cause")
        length = (1, 2, 3, 4, 6)[self.dice.weighted((20, 30, 27, 15, 8))]
        sentences = []
        for part in parts[:length]:
            fresh = {"n": self.dice.between(3, 60), "file": slots["file"]}
            sentences.append(self.dice.pick(words[part]).format(**{**slots, **fresh}))
        sentences += [f"See #{issue}." for issue in needs]
        return " ".join(_capital(sentence) for sentence in sentences)

    def _write(
        self,
        identity: tuple[str, str],
        texts: tuple[str, str],
        *,
        tags: tuple[str, ...],
        issue: int,
        links: Links = NO_LINKS,
    ) -> None:
        """Add one row at the next moment."""
        memory_id, kind = identity
        sequence = len(self.rows) + 1
        from_event = kind != "episodic"
        self.rows[memory_id] = Row(
            memory_id,
            kind,
            _capital(texts[0]),
            texts[1],
            _json(tags),
            f"event-{sequence:05d}" if from_event else None,
            sequence if from_event else None,
            f"issue:#{issue}",
            "planner" if kind == "semantic" else "reviewer" if kind == "procedural" else "builder",
            1.0 if "merged" in tags else self.dice.between(12, 19) / 20,
            next(self.moments).isoformat(),
            _json([links.replaces] if links.replaces else []),
            _json([f"issue:#{number}" for number in links.needs]),
        )

    def _supersede(self, old: str, new: str) -> None:
        """Mark row `old` as replaced by `new`."""
        self.rows[old] = self.rows[old]._replace(superseded_by=new)
        self.open = [entry for entry in self.open if entry[0] != old]


def working_moments(count: int, *, first: date, last: date, seed: int) -> list[datetime]:
    """Return `count` moments in order: working hours, slow weekends, bursts and quiet weeks."""
    dice = Dice(seed)
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    weeks = [_week(dice, first + timedelta(weeks=n)) for n in range(len(days) // 7 + 1)]
    weekday = (1.0, 1.15, 1.1, 1.05, 0.85, 0.2, 0.15)
    sums = list(accumulate(weeks[n // 7] * weekday[day.weekday()] for n, day in enumerate(days)))
    found = {datetime(last.year, last.month, last.day, 17, 42, 5, tzinfo=UTC)}
    while len(found) < count:
        day = days[bisect(sums, dice.random() * sums[-1])]
        seconds = int(3600 * (13.5 + 3.2 * max(-2.2, min(2.9, dice.normal()))))
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(seconds=seconds)
        if moment <= max(found):
            found.add(moment)
    return sorted(found)


def _week(dice: Dice, monday: date) -> float:
    """Return how busy a week is; 1 is an ordinary one."""
    ordinary = exp(0.3 * dice.normal())
    mood = dice.random()
    if (monday.month, monday.day) >= (12, 20) or (monday.month == 8 and monday.day <= 14):
        return 0.1
    return 0.2 if mood < 0.08 else ordinary * (2.5 if mood > 0.9 else 1.0)


def three_hundred_issues() -> list[Row]:
    """Return the worked example: 3 decisions, 5 skills, 592 active episodes of 300 issues."""
    dice = Dice(300)
    at_once = {17, 48, 90, 133, 171, 214, 255, 288}  # merged at the first attempt
    twice = {issue for issue in range(1, 301) if issue not in at_once and dice.chance(0.14)}
    lessons = {4: "decision", 20: "skill", 55: "skill", 61: "decision", 110: "skill",
               170: "decision", 190: "skill", 260: "skill"}  # fmt: skip
    count = 600 + len(twice)
    days = {"first": date(2026, 1, 5), "last": date(2026, 6, 30)}
    project = Project(seed=301, moments=iter(working_moments(count, seed=302, **days)))
    skills = iter(range(len(project.phrases["skills"])))
    for issue in range(1, 301):
        before = project.failed(issue) if issue in twice else None
        if issue not in at_once:
            project.failed(issue, 2 if before else 1, replaces=before)
        project.merged(issue)
        if lessons.get(issue) == "decision":
            project.decision(issue)
        elif lessons.get(issue) == "skill":
            project.skill(issue, next(skills))
    return list(project.rows.values())


def two_years() -> list[Row]:
    """Return two years of work: 3,200 rows."""
    days = {"first": date(2024, 7, 1), "last": date(2026, 6, 30)}
    moments = working_moments(3200, seed=2024, **days)
    project = Project(seed=2026, moments=iter(moments))
    return _worked(project, (Dice(2025), Dice(730)), len(moments))


def looked_up() -> list[Row]:
    """Return a year of an agent that looks up what it wrote: 480 rows, read as in their log."""
    return _agent(481, 480)


def looked_up_reads() -> bytes:
    """Return the log of what was looked up: once in most sessions, now and then twice."""
    return _log_of(LookUps(Dice(483)), 0.9, 0.3)


def looked_up_searches() -> bytes:
    """Return another log of the same store: what was found by a search in four of five sessions."""
    return _log_of(Searches(Dice(484)), 0.8)


def _log_of(lookups: LookUps, *chances: float) -> bytes:
    """Return the log of a year's sessions, each of which reads with these chances."""
    written = list[str]()
    for row in looked_up():
        at = datetime.fromisoformat(row.created_at) - timedelta(minutes=5)
        reads = sum(lookups.dice.chance(chance) for chance in chances)
        for _ in range(reads if len(written) >= 5 else 0):
            lookups.read(written, at)
        if row.kind == "episodic" and "rejected-path" not in row.tags_json:
            written.append(row.memory_id)
    return lookups.as_log()


def fleet_agent(number: int) -> list[Row]:
    """Return the memory of one of many agents: each larger than the one before, some planners'."""
    planner = number % 10 == 9
    return _agent(1_000 + number, int(60 * 1.12**number), decisions=200 if planner else 1.5)


def _agent(seed: int, count: int, *, decisions: float = 1.5) -> list[Row]:
    """Return so many rows of a year of issues as they come."""
    days = {"first": date(2025, 7, 1), "last": date(2026, 6, 30)}
    moments = working_moments(count, seed=seed, **days)
    project = Project(seed=seed + 10_000, moments=iter(moments))
    dice = Dice(seed + 20_000), Dice(seed + 30_000)
    return _worked(project, dice, count, decisions=decisions)


def _worked(
    project: Project, dice: tuple[Dice, Dice], count: int, *, decisions: float = 1.5
) -> list[Row]:
    """Return so many rows of a project that works on issues as they come."""
    choose = dice[0]
    numbers = _issue_numbers(dice[1])
    retries: list[tuple[int, int, str]] = []  # (row at which it is due, issue, the failure)
    while len(project.rows) < count:
        if retries and retries[0][0] <= len(project.rows):
            _, issue, failure = retries.pop(0)
            project.merged(issue, replaces=failure)
            continue
        _one_outcome(project, choose, next(numbers), retries.append, decisions=decisions)
        retries.sort()
    return list(project.rows.values())


def _one_outcome(
    project: Project,
    dice: Dice,
    issue: int,
    retry_later: Callable[[tuple[int, int, str]], None],
    *,
    decisions: float = 1.5,
) -> None:
    """Write what became of one issue."""
    outcome = dice.weighted((80.0, 6.5, 8.3, 2.2, decisions, 1.5))
    if outcome == 0:
        project.merged(issue)
    elif outcome == 1:
        due = len(project.rows) + dice.between(2, 30)
        retry_later((due, issue, project.failed(issue)))
    elif outcome == 2:
        project.failed(issue)
    elif outcome == 3:
        project.rejected_path(issue)
    elif outcome == 4:
        project.decision(issue, revise=0.25)
    else:
        project.skill(issue, dice.between(0, len(project.phrases["skills"]) - 1))


def _issue_numbers(dice: Dice) -> Iterator[int]:
    """Yield issue numbers nearly in order, as work is picked up."""
    shelf = list(range(101, 109))
    fresh = shelf[-1] + 1
    while True:
        yield shelf.pop(min(dice.between(0, 7), dice.between(0, 7)))
        shelf.append(fresh)
        fresh += 1 + dice.chance(0.15)


def _capital(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a path."""
    return text if "/" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


def _json(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def odek_folder() -> dict[str, bytes]:
    """Return the files of a folder of odek's episodes, and of the log of what was read of it.

    160 sessions of the first half of 2026. Some repeat what an earlier one said; some had text from
    elsewhere in them, and of those some were approved. Most sessions look an earlier episode up.
    """
    days = {"first": date(2026, 1, 5), "last": date(2026, 6, 30)}
    moments = working_moments(160, seed=161, **days)
    project = Project(seed=162, moments=iter(moments))
    dice = Dice(163)
    for issue in range(1, len(moments) + 1):
        project.merged(issue)
    rows = list(project.rows.values())
    files = {}
    entries = []
    lookups = LookUps(Dice(164))
    said: list[str] = []
    for number, row in enumerate(rows, start=1):
        session = _session(number)
        repeats = bool(said) and dice.chance(0.1)
        again = said[-dice.between(1, min(30, len(said)))] + " Again." if repeats else ""
        summary = again or f"{row.title}.\n\n{row.body}"
        said.append(summary)
        files[f"odek/{session}.md"] = summary.encode()
        entries.append(_entry(session, summary, row.created_at, dice))
        if number > 5 and lookups.dice.chance(0.9):
            earlier = [_session(before) for before in range(1, number)]
            lookups.read(earlier, datetime.fromisoformat(row.created_at))
    files["odek/index.json"] = json.dumps(entries, indent=2, ensure_ascii=False).encode()
    files["odek.reads.jsonl"] = lookups.as_log()
    return files


def _session(number: int) -> str:
    return f"session-{number:03d}"


def _entry(session: str, summary: str, created_at: str, dice: Dice) -> dict[str, Any]:
    """Return what odek's index says of an episode; the summary is cut at 120 bytes."""
    raw = summary.encode()
    provenance: dict[str, Any] = {}
    if dice.chance(0.12):
        provenance = {"untrusted": True, "sources": ["web_fetch"]}
        provenance |= {"user_approved": True} if dice.chance(0.4) else {}
    return {
        "session_id": session,
        "turns": dice.between(2, 30),
        "created_at": created_at.replace("+00:00", "Z"),
        "summary": raw[:117].decode(errors="ignore") + "..." if len(raw) > 120 else summary,
        "provenance": provenance,
    }


STORES: dict[str, Callable[[], list[Row]]] = {
    "looked_up": looked_up,
    "three_hundred_issues": three_hundred_issues,
    "two_years": two_years,
}


def write_store(path: Path, rows: Sequence[Row]) -> None:
    """Write `rows` as a new store at `path`, in one file that any reader can open.

    The journal is SQLite's rollback journal: a store in WAL mode cannot be read from a folder where
    its side files cannot be made, such as an installed package of another user.
    """
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    with connection:
        marks = ",".join("?" * len(Row._fields))
        connection.executemany(f"INSERT INTO memory_items VALUES ({marks})", rows)
    connection.execute("VACUUM")
    connection.close()


def main(folder: Path) -> None:
    """Write every bundled store into `folder` and say how large it came out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in STORES.items():
        path = folder / f"{name}.db"
        write_store(path, rows())
        print(f"{path}: {path.stat().st_size:,} bytes")
    logs = {
        "looked_up.reads.jsonl": looked_up_reads(),
        "looked_up.searches.jsonl": looked_up_searches(),
    }
    for name, content in {**odek_folder(), **logs}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    print(f"{folder / 'odek'}: {len(list((folder / 'odek').glob('*.md')))} episodes")


def write_fleet(folder: Path, agents: int) -> None:
    """Write a store for each of so many agents into a folder of its own."""
    for number in range(agents):
        path = folder / f"agent-{number:02}" / "memory.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_store(path, fleet_agent(number))


if __name__ == "__main__":
    given = sys.argv[1:]
    if len(given) > 1:
        write_fleet(Path(given[0]), int(given[1]))
    else:
        main(Path(given[0]) if given else HERE)
