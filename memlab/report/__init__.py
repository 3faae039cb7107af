"""A report as one page, notebooks on a store, the panel, the decision record, the bundled stores.

Loads nothing until a name is used: each needs extras of its own.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.report.answer import decision_record
    from memlab.report.bundled import store_names, store_path
    from memlab.report.findings import Findings, Question, examine
    from memlab.report.page import write_report
    from memlab.report.panel import SizingPanel, explore

__all__ = [
    "Findings",
    "Question",
    "SizingPanel",
    "decision_record",
    "examine",
    "explore",
    "store_names",
    "store_path",
    "write_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "answer": "decision_record",
        "bundled": "store_names store_path",
        "findings": "Findings Question examine",
        "page": "write_report",
        "panel": "SizingPanel explore",
    },
)
