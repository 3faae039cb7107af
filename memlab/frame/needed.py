"""What an analysis needs of the frames it is given, and what is said of any other."""

from typing import Final

from memlab import columns as c
from memlab.arguments import expect_frame

NEEDED: Final = (
    *(c.POSITION, c.MEMORY_ID, c.KIND, c.TOKENS, c.CREATED_AT, c.SOURCE_TASK_REF),
    *(c.SUPERSEDES, c.EVIDENCE_REFS, c.SUPERSEDED_BY, c.ACTIVE, c.LOAD_BEARING, c.PRUNABLE),
)
"""Columns of a frame of memories that some analysis reads."""


def expect_memories(frame: object, *, call: str) -> None:
    """Refuse what is no frame of memories.

    Raises
    ------
    WrongArgumentError
        In words, with the call that was meant.
    """
    expect_frame(frame, *NEEDED, call=call)


def expect_references(references: object, *, call: str, optional: bool = False) -> None:
    """Refuse what is no frame of references.

    Raises
    ------
    WrongArgumentError
        In words, with the call that was meant.
    """
    expect_frame(
        references,
        *c.REFERENCE_DTYPES,
        call=call,
        name="references",
        what="references",
        optional=optional,
    )
