"""What applying a plan did, as data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Self

from memlab.compaction.wire import (
    FORMAT,
    change,
    field_of,
    fields_checked,
    in_words,
    minute,
    parsed,
    tuple_of,
    when,
)
from memlab.items import Size
from memlab.sources.opening import start_words
from memlab.text import Sheet, Shown, counted, in_shell


@dataclass(frozen=True, repr=False)
class Receipt(Shown):
    """What applying a plan did.

    Parameters
    ----------
    digest : str
        The plan's.
    store, archive : str
        Where the memories were, and where they are now. The archive is None when there was nothing
        to delete.
    policy : dict
        As in the plan.
    made_at, applied_at : datetime
        When it was decided and when it was done.
    deleted : int
        How many memories.
    superseded : int
        For how many another memory stands now.
    boot_before, boot_after : Size
        The boot context as the plan saw it.
    token_rule : str
        How tokens were counted.
    expired : int
        How many the plan would have deleted whose own time had passed before.
    finished : tuple of str
        Digests of earlier plans that had been carried out and were noted as done now: each was
        stopped before its note.
    """

    digest: str
    store: str
    archive: str | None
    policy: Mapping[str, Any]
    made_at: datetime
    applied_at: datetime
    deleted: int
    boot_before: Size
    boot_after: Size
    token_rule: str
    superseded: int = 0
    expired: int = 0
    finished: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.digest, self.applied_at))

    @property
    def undo(self) -> str:
        """The command that takes it back."""
        return in_shell("memlab", "restore", self.store, self.digest[:12])

    def to_json(self) -> str:
        """Return the receipt as one JSON object."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {
            "policy": dict(self.policy),
            "made_at": self.made_at.isoformat(),
            "applied_at": self.applied_at.isoformat(),
            "boot_before": self.boot_before._asdict(),
            "boot_after": self.boot_after._asdict(),
        }
        return json.dumps({"memlab_receipt": FORMAT, **content}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the receipt that :meth:`to_json` wrote.

        Raises
        ------
        PlanError
            When the text is not a receipt, or is one of another format.
        """
        content = parsed(text, "memlab_receipt")
        with fields_checked("receipt"):
            return cls(
                digest=field_of(content, "digest", str),
                store=field_of(content, "store", str),
                archive=field_of(content, "archive", str, type(None)),
                policy=field_of(content, "policy", dict),
                made_at=when(content, "made_at"),
                applied_at=when(content, "applied_at"),
                deleted=field_of(content, "deleted", int),
                boot_before=tuple_of(field_of(content, "boot_before", dict), Size),
                boot_after=tuple_of(field_of(content, "boot_after", dict), Size),
                token_rule=field_of(content, "token_rule", str),
                superseded=field_of({"superseded": 0} | content, "superseded", int),
                expired=field_of({"expired": 0} | content, "expired", int),
                finished=tuple(map(str, field_of({"finished": []} | content, "finished", list))),
            )

    def sheet(self) -> Sheet:
        """Return what is printed."""
        facts = [
            ("policy", in_words(self.policy)),
            ("applied", minute(self.applied_at)),
            ("superseded", counted(self.superseded))
            if self.superseded
            else ("deleted", counted(self.deleted)),
            *(
                [("expired", f"{counted(self.expired)} since the plan was made")]
                * bool(self.expired)
            ),
            (start_words(self.store), change(self.boot_before, self.boot_after)),
            ("archive", self.archive or "none: there was nothing to delete"),
        ]
        if self.archive:
            facts.append(("undo", self.undo))
        for digest in self.finished:
            undo = in_shell("memlab", "restore", self.store, digest[:12])
            what = f"plan {digest[:12]} was carried out earlier and stopped before it was noted"
            facts.append(("finished", f"{what}; undo: {undo}"))
        return Sheet(f"plan {self.digest[:12]} applied to {self.store}", facts)
