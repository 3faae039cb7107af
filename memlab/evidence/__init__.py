"""What says that a memory was needed: references, access logs, other projects, the whole past.

Loads nothing until a name is used: a runtime that writes a log pays for no frame.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.evidence.access_log import AccessLog
    from memlab.evidence.cut import CutLosses, cut_losses
    from memlab.evidence.harvest import Harvest, harvest_reads
    from memlab.evidence.posterior import law_lines
    from memlab.evidence.reads import (
        describe_chances,
        describe_log,
        read_access_log,
        reading_chances,
    )
    from memlab.evidence.references import count_references, find_references

__all__ = [
    "AccessLog",
    "CutLosses",
    "Harvest",
    "count_references",
    "cut_losses",
    "describe_chances",
    "describe_log",
    "find_references",
    "harvest_reads",
    "law_lines",
    "read_access_log",
    "reading_chances",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "access_log": "AccessLog",
        "cut": "CutLosses cut_losses",
        "harvest": "Harvest harvest_reads",
        "posterior": "law_lines",
        "reads": "describe_chances describe_log read_access_log reading_chances",
        "references": "count_references find_references",
    },
)
