"""What there is to say of a claude-mem database that no frame holds: what a start loads of it."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from memlab.text import Sheet, Shown, Table

LISTED: Final = 10


class Project(NamedTuple):
    """A project's observations, and how many of them its start loads at most."""

    name: str
    observations: int
    loaded: int


@dataclass(frozen=True, repr=False)
class ObservationFacts(Shown):
    """What a start loads of a claude-mem database.

    Parameters
    ----------
    store : str
        What was looked at.
    setting : str
        The cap as it is today, and where it is set.
    newest : int
        That cap.
    mode : str
        claude-mem's mode.
    is_known_mode : bool
        Whether the types and concepts that it loads are known; else all are taken to be loaded.
    schema : int or None
        The newest migration of the file.
    known_schema : int
        The newest that memlab was tried on.
    projects : tuple of Project
        The largest first.
    """

    store: str
    setting: str
    newest: int
    mode: str
    is_known_mode: bool
    schema: int | None
    known_schema: int
    projects: tuple[Project, ...]

    def sheet(self) -> Sheet:
        """Return the facts as a page."""
        facts = [
            ("loaded", f"the newest observations of one project, at most {self.newest:,}; fewer"),
            ("", "where their lines come to more than 10,000 characters"),
            ("setting", self.setting),
            ("deletion", "none by memlab: claude-mem replicates them and keeps vectors"),
        ]
        if not self.is_known_mode:
            facts.append(("mode", f"{self.mode}: its types are not known, all are counted"))
        if self.schema is not None and self.schema > self.known_schema:
            newer = f"{self.schema}, newer than {self.known_schema}, the newest that memlab knows"
            facts.append(("schema", f"{newer}; what it knows is read"))
        rows = [(each.name, each.observations, each.loaded) for each in self.projects[:LISTED]]
        hidden = len(self.projects) - len(rows)
        remark = f"and {hidden:,} more" if hidden else ""
        header = ("project", "observations", "loaded at start")
        return Sheet("claude-mem", facts, [Table("", header, rows, remark)])
