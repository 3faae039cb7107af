"""What says that a memory was needed: references, access logs, other projects, the whole past.

Loads nothing until a name is used: a runtime that writes a log pays for no frame.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.evidence.access_log import AccessLog
    from memlab.evidence.elsewhere import law_lines
    from memlab.evidence.reads import describe_log, read_access_log
    from memlab.evidence.references import count_references, find_references

__all__ = [
    "AccessLog",
    "count_references",
    "describe_log",
    "find_references",
    "law_lines",
    "read_access_log",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "access_log": "AccessLog",
        "elsewhere": "law_lines",
        "reads": "describe_log read_access_log",
        "references": "count_references find_references",
    },
)
