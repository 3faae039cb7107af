#!/usr/bin/env python3
"""Write the bundled stores; the rows are the same every time.

    python data/generate.py                 write three_hundred_issues.db, two_years.db and
                                            looked_up.db, the folder odek, and logs of reads of the
                                            last two, beside this file
    python data/generate.py FOLDER          write them into FOLDER
    python data/generate.py FOLDER AGENTS   write a store for each of AGENTS agents into FOLDER

All stores are simulated; README.md beside this file describes the models. The script needs only the
standard library. All random numbers come from ``random()`` of a seeded generator, the one method
whose sequence Python promises to keep.
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
from typing import Any, Final, NamedTuple

DATA: Final = Path(__file__).resolve().parent

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS memory_items (
    memory_id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    tags_json TEXT NOT NULL, source_event_id TEXT, source_sequence INTEGER, source_task_ref TEXT,
    authored_by TEXT NOT NULL, confidence REAL NOT NULL, created_at TEXT NOT NULL,
    supersedes_json TEXT NOT NULL, evidence_refs_json TEXT NOT NULL, superseded_by TEXT
);
"""

# References. Their distance is the number of prunable active memories stored since; log-normal.
MEDIAN_DISTANCE: Final = 40
P90_DISTANCE: Final = 500
DISTANCE_SIGMA: Final = log(P90_DISTANCE / MEDIAN_DISTANCE) / NormalDist().inv_cdf(0.9)
REFERENCE_COUNT_QUANTILES: Final = (0.905, 0.991)
"""Share of episodes that refer to no earlier issue, and to at most one; the others draw two."""

# Reads. A session reads again what was read before, recent reads first, or any other memory.
REREAD_SHARE: Final = 0.7
READ_HALF_LIFE: Final = timedelta(days=14)
"""Time after which a read makes another read of the same memory half as likely."""
REACH_MEAN: Final = 0.75
"""Mean age rank of the other reads, as a power of the number of memories written."""
REACH_SD: Final = 0.19

# Searches. Chosen such that the log has about the chances measured in public stores (README.md).
READ_DAYS: Final = (1, 2, 3, 5)
"""Numbers of days with a read at which the weight of a memory changes."""
WEIGHT_BY_READ_DAYS: Final = (0.4, 1.6, 2.0, 3.0, 5.0)
"""Weights below the first number of days, and from each one on."""
WEIGHT_BY_QUARTER: Final = (2.6, 0.9, 0.45, 0.4)
"""Weights by age, the newest quarter of the memories first."""

# Issues.
OUTCOME_WEIGHTS: Final = {
    "merged": 80.0,
    "failed, merged later": 6.5,
    "failed": 8.3,
    "rejected path": 2.2,
    "decision": 1.5,
    "skill": 1.5,
}
DECISION_WEIGHT: Final = OUTCOME_WEIGHTS["decision"]
PLANNER_DECISION_WEIGHT: Final = 200.0
REVISED_DECISIONS: Final = 0.25
"""Share of the decisions that replace an earlier one."""
AUTHORS: Final = {"semantic": "planner", "procedural": "reviewer", "episodic": "builder"}
WEEKDAY_ACTIVITY: Final = (1.0, 1.15, 1.1, 1.05, 0.85, 0.2, 0.15)
"""How busy each day of the week is, Monday first."""


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


class NewMemory(NamedTuple):
    """A memory to write: `references` are earlier issues, `replaces` is the id of a memory."""

    memory_id: str
    kind: str
    title: str
    body: str
    tags: Sequence[str]
    issue: int
    references: Sequence[int] = ()
    replaces: str | None = None


class Episode(NamedTuple):
    """A prunable active memory, and the issue that it is about."""

    memory_id: str
    issue: int


class Decision(NamedTuple):
    """An active decision, and the values that its sentences were filled in with."""

    memory_id: str
    fields: dict[str, Any]


class Skill(NamedTuple):
    """The active revision of a skill; the first one is number 1."""

    memory_id: str
    revision: int


class Retry(NamedTuple):
    """A failed issue that is merged when so many rows have been written."""

    due_rows: int
    issue: int
    failure: str


class Read(NamedTuple):
    """A read of a memory by a session."""

    memory_id: str
    at: datetime


class Dice:
    """Random draws that depend only on the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with `probability`."""
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, choices: Sequence[Any]) -> Any:
        """Draw one of `choices`, each with the same probability."""
        return choices[int(self.random() * len(choices))]

    def weighted_index(self, weights: Iterable[float]) -> int:
        """Draw the index of a weight with a probability proportional to the weight."""
        sums = list(accumulate(weights))
        return bisect(sums, self.random() * sums[-1])

    def normal(self) -> float:
        """Draw a standard normal number."""
        return NormalDist().inv_cdf(max(self.random(), 1e-12))

    def distance(self) -> int:
        """Draw the distance of a reference; 1 is the newest prunable active memory."""
        return max(1, ceil(MEDIAN_DISTANCE * exp(DISTANCE_SIGMA * self.normal())))


class ReadLog:
    """Reads of an agent that reads a few memories often and most of them never."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.reads: list[Read] = []

    def add_read(self, memory_ids: Sequence[str], at: datetime) -> None:
        """Draw a read of one of the memories written so far, oldest first, and add it."""
        self.reads.append(Read(self._draw_memory(memory_ids, at), at))

    def to_json_lines(self) -> bytes:
        """Write the log as JSON, one line a read."""
        entries = [{"memory_id": read.memory_id, "at": read.at.isoformat()} for read in self.reads]
        return join_lines(json.dumps(entry) for entry in entries)

    def _draw_memory(self, memory_ids: Sequence[str], at: datetime) -> str:
        """Draw the memory that is read at a time."""
        if self.reads and self.dice.chance(REREAD_SHARE):
            weights = [2 ** -((at - read.at) / READ_HALF_LIFE) for read in self.reads]
            return self.reads[self.dice.weighted_index(weights)].memory_id
        reach = min(1.0, abs(REACH_MEAN + REACH_SD * self.dice.normal()))
        age_rank = max(1, int(len(memory_ids) ** reach))
        return memory_ids[-age_rank]


class SearchLog(ReadLog):
    """Hits of searches, more of them on memories that were found before and on new ones."""

    def __init__(self, dice: Dice) -> None:
        super().__init__(dice)
        self.read_days: dict[str, set[date]] = {}

    def add_read(self, memory_ids: Sequence[str], at: datetime) -> None:
        """Draw a hit on one of the memories written so far, oldest first, and add it."""
        super().add_read(memory_ids, at)
        memory_id = self.reads[-1].memory_id
        self.read_days.setdefault(memory_id, set()).add(at.date())

    def _draw_memory(self, memory_ids: Sequence[str], at: datetime) -> str:  # noqa: ARG002
        """Draw the memory that is found, by its days with a read and by its age."""
        count = len(memory_ids)
        weights = []
        for position, memory_id in enumerate(memory_ids):
            days = len(self.read_days.get(memory_id, ()))
            newer = count - 1 - position
            by_days = WEIGHT_BY_READ_DAYS[bisect(READ_DAYS, days)]
            by_age = WEIGHT_BY_QUARTER[4 * newer // count]
            weights.append(by_days * by_age)
        return memory_ids[self.dice.weighted_index(weights)]


class Project:
    """The memory of an invented project, written memory by memory.

    Attributes
    ----------
    moments : iterator of datetime
        Times of the next memories.
    rows : dict of str to Row
        All memories by id, oldest first.
    prunable : list of Episode
        The prunable active memories, oldest first.
    decisions : list of Decision
        The active decisions.
    skills : dict of int to Skill
        The active revision of each skill, by its position in ``phrases.json``.
    """

    def __init__(self, *, seed: int, moments: Iterable[datetime]) -> None:
        self.dice = Dice(seed)
        self.moments = iter(moments)
        self.phrases = json.loads((DATA / "phrases.json").read_text(encoding="utf-8"))
        self.rows: dict[str, Row] = {}
        self.prunable: list[Episode] = []
        self.decisions: list[Decision] = []
        self.skills: dict[int, Skill] = {}

    def add_merge(self, issue: int, *, replaces: str | None = None) -> None:
        """Add the episode of an issue that was merged; it can replace an earlier failure."""
        self._add_episode("merged", f"episodic-merged-{issue}", issue, replaces=replaces)

    def add_failure(self, issue: int, attempt: int = 1, *, replaces: str | None = None) -> str:
        """Add the episode of a failed attempt, and return its id; it can replace the one before."""
        memory_id = f"episodic-failed-{issue}-{attempt}"
        self._add_episode("failed", memory_id, issue, replaces=replaces)
        return memory_id

    def add_rejected_path(self, issue: int) -> None:
        """Add an approach that was tried and rejected."""
        fields = self._draw_fields(issue)
        phrases = self.phrases["rejected"]
        approach, reason, axis = self.dice.pick(phrases["approaches"])
        fields["approach"] = approach
        fields["approach_cap"] = _capitalize(approach)
        fields["why"] = reason.format(**fields)
        memory = NewMemory(
            memory_id=f"episodic-rejected-{issue}",
            kind="episodic",
            title=self.dice.pick(phrases["titles"]).format(**fields),
            body=self.dice.pick(phrases["body"]).format(**fields),
            tags=("rejected-path", f"axis:{axis}"),
            issue=issue,
        )
        self._add(memory)

    def add_decision(self, issue: int, *, revise: float = 0.0) -> None:
        """Add a decision; with probability `revise` it replaces an earlier one."""
        replaced = None
        if self.decisions and self.dice.chance(revise):
            replaced = self.decisions.pop(self.dice.between(0, len(self.decisions) - 1))
            fields = replaced.fields
            fields["thing"] = self._draw_fields(issue)["thing"]
            fields["old"] = replaced.memory_id
            title = "{Option} for {area}, with an exception"
            body = (
                "Replaces {old}: still {option}, but not for {thing}, where {other_option} stays."
            )
        else:
            fields = self._draw_fields(issue)
            option, other_option, reason = self.dice.pick(self.phrases["decisions"])
            fields["option"] = option
            fields["Option"] = _capitalize(option)
            fields["other_option"] = other_option
            fields["why"] = reason.format(**fields)
            title = "{Option} for {area}, not {other_option}"
            body = self.dice.pick(self.phrases["decision_body"])
        number = 1 + sum(row.kind == "semantic" for row in self.rows.values())
        memory = NewMemory(
            memory_id=f"semantic-decision-{number}",
            kind="semantic",
            title=title.format(**fields),
            body=body.format(**fields),
            tags=("decision",),
            issue=issue,
            replaces=replaced.memory_id if replaced else None,
        )
        self._add(memory)
        self.decisions.append(Decision(memory.memory_id, fields))

    def add_skill(self, issue: int, position: int) -> None:
        """Add the skill at a position in ``phrases.json``, or its next revision."""
        title, body = self.phrases["skills"][position]
        replaced = self.skills.get(position)
        revision = 1
        if replaced:
            revision = replaced.revision + 1
            title = f"{title} (revision {revision})"
        notes = self.phrases["skill_revisions"]
        added = [notes[(position + number) % len(notes)] for number in range(revision - 1)]
        memory = NewMemory(
            memory_id=f"procedural-skill-{position + 1}-v{revision}",
            kind="procedural",
            title=title,
            body=" ".join([body, *added]),
            tags=("skill", "validated"),
            issue=issue,
            replaces=replaced.memory_id if replaced else None,
        )
        self._add(memory)
        self.skills[position] = Skill(memory.memory_id, revision)

    def _add_episode(
        self, outcome: str, memory_id: str, issue: int, *, replaces: str | None
    ) -> None:
        """Add an episode with its references to earlier issues."""
        fields = self._draw_fields(issue)
        phrases = self.phrases[outcome]
        references = self._draw_references(issue)
        memory = NewMemory(
            memory_id=memory_id,
            kind="episodic",
            title=self.dice.pick(phrases["titles"]).format(**fields),
            body=self._draw_body(phrases, fields, references),
            tags=(outcome, f"area:{fields['area']}"),
            issue=issue,
            references=references,
            replaces=replaces,
        )
        self._add(memory)
        self.prunable.append(Episode(memory_id, issue))

    def _draw_references(self, issue: int) -> list[int]:
        """Draw the earlier issues that an episode about `issue` refers to."""
        references = set()
        for _ in range(bisect(REFERENCE_COUNT_QUANTILES, self.dice.random())):
            distance = self.dice.distance()
            if distance <= len(self.prunable):
                references.add(self.prunable[-distance].issue)
        references.discard(issue)
        return sorted(references)

    def _draw_fields(self, issue: int) -> dict[str, Any]:
        """Draw the values for the placeholders of phrases: area of the system, file, numbers."""
        dice = self.dice
        areas = self.phrases["areas"]
        area = dice.pick(list(areas))
        other_area = dice.pick(list(areas))
        slow_ms = dice.between(180, 4200)
        return {
            "issue": issue,
            "area": area,
            "thing": dice.pick(areas[area]["things"]),
            "file": dice.pick(areas[area]["files"]),
            "other": dice.pick(areas[other_area]["things"]),
            "n": dice.between(3, 60),
            "ms": slow_ms,
            "ms2": slow_ms // dice.between(2, 9),
        }

    def _draw_body(
        self, phrases: dict[str, list[str]], fields: dict[str, Any], references: list[int]
    ) -> str:
        """Draw one to six sentences, and add one for each reference."""
        parts = ("what", "cause", "lesson", "check", "what", "cause")
        length = (1, 2, 3, 4, 6)[self.dice.weighted_index((20, 30, 27, 15, 8))]
        sentences = []
        for part in parts[:length]:
            number = self.dice.between(3, 60)  # another one in each sentence
            phrase = self.dice.pick(phrases[part])
            sentences.append(phrase.format(**fields | {"n": number}))
        sentences += [f"See #{issue}." for issue in references]
        return " ".join(_capitalize(sentence) for sentence in sentences)

    def _add(self, memory: NewMemory) -> None:
        """Add a memory at the next moment, and mark the one that it replaces."""
        source_event_id = None
        source_sequence = None
        if memory.kind != "episodic":
            source_sequence = len(self.rows) + 1
            source_event_id = f"event-{source_sequence:05d}"
        confidence = 1.0
        if "merged" not in memory.tags:
            confidence = self.dice.between(12, 19) / 20
        self.rows[memory.memory_id] = Row(
            memory_id=memory.memory_id,
            kind=memory.kind,
            title=_capitalize(memory.title),
            body=memory.body,
            tags_json=_to_json(memory.tags),
            source_event_id=source_event_id,
            source_sequence=source_sequence,
            source_task_ref=f"issue:#{memory.issue}",
            authored_by=AUTHORS[memory.kind],
            confidence=confidence,
            created_at=next(self.moments).isoformat(),
            supersedes_json=_to_json([memory.replaces] if memory.replaces else []),
            evidence_refs_json=_to_json([f"issue:#{number}" for number in memory.references]),
        )
        if memory.replaces:
            self._supersede(memory.replaces, by=memory.memory_id)

    def _supersede(self, memory_id: str, *, by: str) -> None:
        """Mark a memory as superseded by another one."""
        self.rows[memory_id] = self.rows[memory_id]._replace(superseded_by=by)
        self.prunable = [episode for episode in self.prunable if episode.memory_id != memory_id]


def working_moments(count: int, *, first: date, last: date, seed: int) -> list[datetime]:
    """Draw `count` moments in order: working hours, slow weekends, bursts and quiet weeks.

    The last moment is always the same, on the last day.
    """
    dice = Dice(seed)
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    weeks = [_draw_activity(dice, first + timedelta(weeks=n)) for n in range(len(days) // 7 + 1)]
    activity = [weeks[n // 7] * WEEKDAY_ACTIVITY[day.weekday()] for n, day in enumerate(days)]
    sums = list(accumulate(activity))
    end = datetime(last.year, last.month, last.day, 17, 42, 5, tzinfo=UTC)
    moments = {end}
    while len(moments) < count:
        day = days[bisect(sums, dice.random() * sums[-1])]
        hours = 13.5 + 3.2 * max(-2.2, min(2.9, dice.normal()))
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        moment = midnight + timedelta(seconds=int(3600 * hours))
        if moment <= end:
            moments.add(moment)
    return sorted(moments)


def _draw_activity(dice: Dice, monday: date) -> float:
    """Draw how busy a week is; about 1 is an ordinary one."""
    activity = exp(0.3 * dice.normal())
    kind = dice.random()
    is_christmas = (monday.month, monday.day) >= (12, 20)
    is_summer_break = monday.month == 8 and monday.day <= 14
    if is_christmas or is_summer_break:
        return 0.1
    if kind < 0.08:
        return 0.2
    if kind > 0.9:
        return 2.5 * activity
    return activity


def three_hundred_issues() -> list[Row]:
    """Write the worked example: 3 decisions, 5 skills, 592 active episodes of 300 issues."""
    dice = Dice(300)
    merged_at_once = {17, 48, 90, 133, 171, 214, 255, 288}
    failed_twice = set()
    for issue in range(1, 301):
        if issue not in merged_at_once and dice.chance(0.14):
            failed_twice.add(issue)
    decisions = {4, 61, 170}
    skills = {20: 0, 55: 1, 110: 2, 190: 3, 260: 4}  # positions in phrases.json by issue
    moments = working_moments(
        600 + len(failed_twice), first=date(2026, 1, 5), last=date(2026, 6, 30), seed=302
    )
    project = Project(seed=301, moments=moments)
    for issue in range(1, 301):
        if issue in failed_twice:
            first_failure = project.add_failure(issue)
            project.add_failure(issue, 2, replaces=first_failure)
        elif issue not in merged_at_once:
            project.add_failure(issue)
        project.add_merge(issue)
        if issue in decisions:
            project.add_decision(issue)
        elif issue in skills:
            project.add_skill(issue, skills[issue])
    return list(project.rows.values())


def two_years() -> list[Row]:
    """Write two years of work: 3,200 rows."""
    moments = working_moments(3200, first=date(2024, 7, 1), last=date(2026, 6, 30), seed=2024)
    project = Project(seed=2026, moments=moments)
    return _write_issues(project, len(moments), outcome_dice=Dice(2025), issue_dice=Dice(730))


def looked_up() -> list[Row]:
    """Write a year of an agent that reads what it wrote: 480 rows."""
    return _write_one_year(481, 480)


def looked_up_reads() -> bytes:
    """Write the log of reads of `looked_up`: one in most sessions, a second one in some."""
    return _log_of_looked_up(ReadLog(Dice(483)), chances=(0.9, 0.3))


def looked_up_searches() -> bytes:
    """Write another log of `looked_up`: hits of searches in four of five sessions."""
    return _log_of_looked_up(SearchLog(Dice(484)), chances=(0.8,))


def _log_of_looked_up(log: ReadLog, *, chances: Sequence[float]) -> bytes:
    """Write a log; each session makes a read with each of the chances."""
    prunable: list[str] = []
    for row in looked_up():
        at = datetime.fromisoformat(row.created_at) - timedelta(minutes=5)
        reads = sum(log.dice.chance(chance) for chance in chances)
        if len(prunable) >= 5:
            for _ in range(reads):
                log.add_read(prunable, at)
        if row.kind == "episodic" and "rejected-path" not in row.tags_json:
            prunable.append(row.memory_id)
    return log.to_json_lines()


def fleet_agent(number: int) -> list[Row]:
    """Write a year of an agent of a fleet; the store grows with the number of the agent.

    Every tenth agent is a planner, which writes mostly decisions.
    """
    is_planner = number % 10 == 9
    weight = PLANNER_DECISION_WEIGHT if is_planner else DECISION_WEIGHT
    return _write_one_year(1_000 + number, int(60 * 1.12**number), decision_weight=weight)


def _write_one_year(
    seed: int, count: int, *, decision_weight: float = DECISION_WEIGHT
) -> list[Row]:
    """Write `count` rows of a year of work."""
    moments = working_moments(count, first=date(2025, 7, 1), last=date(2026, 6, 30), seed=seed)
    return _write_issues(
        Project(seed=seed + 10_000, moments=moments),
        count,
        outcome_dice=Dice(seed + 20_000),
        issue_dice=Dice(seed + 30_000),
        decision_weight=decision_weight,
    )


def _write_issues(
    project: Project,
    count: int,
    *,
    outcome_dice: Dice,
    issue_dice: Dice,
    decision_weight: float = DECISION_WEIGHT,
) -> list[Row]:
    """Write issues until there are `count` rows; some failed ones are merged a few rows later."""
    issues = _draw_issues(issue_dice)
    retries: list[Retry] = []
    while len(project.rows) < count:
        if retries and retries[0].due_rows <= len(project.rows):
            due = retries.pop(0)
            project.add_merge(due.issue, replaces=due.failure)
            continue
        retry = _write_issue(project, outcome_dice, next(issues), decision_weight)
        if retry:
            retries.append(retry)
            retries.sort()
    return list(project.rows.values())


def _write_issue(project: Project, dice: Dice, issue: int, decision_weight: float) -> Retry | None:
    """Draw the outcome of an issue and write it; return the retry if it is merged later."""
    weights = OUTCOME_WEIGHTS | {"decision": decision_weight}
    outcome = list(weights)[dice.weighted_index(weights.values())]
    if outcome == "merged":
        project.add_merge(issue)
    elif outcome == "failed, merged later":
        due_rows = len(project.rows) + dice.between(2, 30)
        return Retry(due_rows, issue, project.add_failure(issue))
    elif outcome == "failed":
        project.add_failure(issue)
    elif outcome == "rejected path":
        project.add_rejected_path(issue)
    elif outcome == "decision":
        project.add_decision(issue, revise=REVISED_DECISIONS)
    else:
        project.add_skill(issue, dice.between(0, len(project.phrases["skills"]) - 1))
    return None


def _draw_issues(dice: Dice) -> Iterator[int]:
    """Yield issue numbers nearly in order: always one of the eight oldest that are open."""
    open_issues = list(range(101, 109))
    new_issue = 109
    while True:
        yield open_issues.pop(min(dice.between(0, 7), dice.between(0, 7)))
        open_issues.append(new_issue)
        new_issue += 2 if dice.chance(0.15) else 1


def _capitalize(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a path."""
    first_word = text.split(" ", 1)[0]
    if "/" in first_word:
        return text
    return text[:1].upper() + text[1:]


def _to_json(values: Sequence[str]) -> str:
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def join_lines(lines: Iterable[str]) -> bytes:
    """Encode lines of a text file."""
    return "".join(f"{line}\n" for line in lines).encode()


def odek_folder() -> dict[str, bytes]:
    """Write a folder of odek's episodes and a log of their reads; return the files by path.

    There are 160 sessions of the first half of 2026. Some repeat the summary of an earlier one.
    Some contained untrusted text, and some of those were approved. Most sessions read an earlier
    episode.
    """
    moments = working_moments(160, first=date(2026, 1, 5), last=date(2026, 6, 30), seed=161)
    project = Project(seed=162, moments=moments)
    for issue in range(1, len(moments) + 1):
        project.add_merge(issue)
    dice = Dice(163)
    log = ReadLog(Dice(164))
    files = {}
    index = []
    sessions: list[str] = []
    summaries: list[str] = []
    for row in project.rows.values():
        session = f"session-{len(sessions) + 1:03d}"
        if summaries and dice.chance(0.1):
            summary = summaries[-dice.between(1, min(30, len(summaries)))] + " Again."
        else:
            summary = f"{row.title}.\n\n{row.body}"
        files[f"odek/{session}.md"] = summary.encode()
        index.append(_odek_entry(session, summary, row.created_at, dice))
        if len(sessions) >= 5 and log.dice.chance(0.9):
            log.add_read(sessions, datetime.fromisoformat(row.created_at))
        sessions.append(session)
        summaries.append(summary)
    files["odek/index.json"] = json.dumps(index, indent=2, ensure_ascii=False).encode()
    files["odek.reads.jsonl"] = log.to_json_lines()
    return files


def _odek_entry(session: str, summary: str, created_at: str, dice: Dice) -> dict[str, Any]:
    """Make the entry of an episode in odek's index, with the summary cut at 120 bytes."""
    provenance: dict[str, Any] = {}
    if dice.chance(0.12):
        provenance = {"untrusted": True, "sources": ["web_fetch"]}
        if dice.chance(0.4):
            provenance["user_approved"] = True
    raw = summary.encode()
    if len(raw) > 120:
        summary = raw[:117].decode(errors="ignore") + "..."
    return {
        "session_id": session,
        "turns": dice.between(2, 30),
        "created_at": created_at.replace("+00:00", "Z"),
        "summary": summary,
        "provenance": provenance,
    }


STORES: Final[dict[str, Callable[[], list[Row]]]] = {
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


def write_bundled_stores(folder: Path) -> None:
    """Write every bundled store into `folder`, and print the sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write_rows in STORES.items():
        path = folder / f"{name}.db"
        write_store(path, write_rows())
        print(f"{path}: {path.stat().st_size:,} bytes")
    files = odek_folder()
    files["looked_up.reads.jsonl"] = looked_up_reads()
    files["looked_up.searches.jsonl"] = looked_up_searches()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    print(f"{folder / 'odek'}: {len(list((folder / 'odek').glob('*.md')))} episodes")


def write_fleet(folder: Path, agents: int) -> None:
    """Write a store for each of `agents` agents, each into a folder of its own."""
    for number in range(agents):
        path = folder / f"agent-{number:02}" / "memory.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_store(path, fleet_agent(number))


def main() -> None:
    """Write a fleet if a number of agents is given, else the bundled stores."""
    arguments = sys.argv[1:]
    folder = Path(arguments[0]) if arguments else DATA
    if len(arguments) > 1:
        write_fleet(folder, int(arguments[1]))
    else:
        write_bundled_stores(folder)


if __name__ == "__main__":
    main()
