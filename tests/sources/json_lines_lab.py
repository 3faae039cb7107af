"""Tests of the source for JSON lines."""

import json
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from typing import Any

from memlab.testing import DeletingSuite, Lab


def line(number: int, name: str, kind: str = "episodic", title: str = "née 🦀") -> str:
    at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=number)
    memory = {"id": name, "at": at.isoformat(), "kind": kind, "tags": ["ü"], "title": title}
    return json.dumps({**memory, "body": 'of two\nlines "quoted"' * 9, "own": number})


class JsonLinesLab(Lab):
    """A file of lines, written under its lock."""

    where = "memory.jsonl"

    def fill(self, count: int) -> None:
        kinds = ["semantic", *["episodic"] * (count - 1)]
        lines = [line(number, f"m{number}", kind) for number, kind in enumerate(kinds)]
        self.path.write_text("\n".join(lines) + "\n")

    def add_pair(self, number: int) -> None:
        pair = [line(99 + number, f"p{number}{side}", title=f"pair {number}") for side in "ab"]
        with self.path.open("a") as file:
            flock(file, LOCK_EX)
            file.write("\n".join(pair) + "\n")

    def change(self, key: Any) -> None:
        before = self.exactly()[key]
        text = self.path.read_text().replace(before, before.replace("quoted", "changed"))
        with self.path.open("r+") as file:
            flock(file, LOCK_EX)
            file.write(text)

    def exactly(self) -> dict[Any, Any]:
        lines = self.path.read_text().splitlines()
        return {json.loads(text)["id"]: text for text in lines}


class TestJsonLines(DeletingSuite):
    lab_type = JsonLinesLab
