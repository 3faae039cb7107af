"""A store's plan on its way from a worker, and in the folder where plans are kept."""

from typing import Final

import pyarrow as pa

from memlab.compaction.plans import Plan
from memlab.errors import PlanError

_CODEC: Final = "zstd"


def packed(plan: Plan) -> bytes:
    """Return a plan in a seventh of the room that its text takes."""
    text = plan.to_json(compact=True).encode()
    whole: bytes = pa.Codec(_CODEC).compress(text, asbytes=True)
    return whole


def unpacked(text: bytes) -> Plan:
    """Return the plan.

    Raises
    ------
    PlanError
        When it is damaged or was edited.

    Examples
    --------
    >>> unpacked(b"not packed")
    Traceback (most recent call last):
    memlab.errors.PlanError: its saved plan is damaged; make a new plan
    """
    try:
        return Plan.from_json(pa.CompressedInputStream(pa.BufferReader(text), _CODEC).read())
    except OSError as error:
        raise PlanError("its saved plan is damaged; make a new plan") from error
