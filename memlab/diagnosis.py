"""What a look at a store's health found, check by check."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from memlab.text import Sheet, Shown


class Status(StrEnum):
    """How a check ended."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    name : str
        What was looked at.
    status : Status
        How it is.
    summary : str
        What was found.
    advice : str
        What to do; empty when there is nothing to do.
    counts : dict of str to int
        The numbers behind the summary.
    """

    name: str
    status: Status
    summary: str
    advice: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """What :func:`memlab.doctor.diagnose` found.

    Parameters
    ----------
    store : str
        The path as it was given.
    checks : tuple of Check
        In the order in which they were made.
    """

    store: str
    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """The worst of the checks."""
        return max((check.status for check in self.checks), key=list(Status).index)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        checks = [vars(check) | {"status": str(check.status)} for check in self.checks]
        return {"store": self.store, "status": str(self.status), "checks": checks}

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = []
        for check in self.checks:
            facts.append((f"{check.status:<4} {check.name}", check.summary))
            facts += [("", f"-> {check.advice}")] if check.advice else []
        return Sheet(f"{self.status}: {self.store}", facts)
