"""Plan, apply, archive, restore, and the room on the disk.

Loads nothing until a name is used: a script that only reads a plan pays for no frame.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.compaction.applier import apply, finish
    from memlab.compaction.contents import (
        archived_plans,
        archived_rows,
        dropped_plans,
        export_archived,
    )
    from memlab.compaction.drops import Drop, drop_archived, what_drops
    from memlab.compaction.effects import CapEffect, Cost, cap_effect, cost_of, survivors
    from memlab.compaction.planner import plan
    from memlab.compaction.plans import Plan
    from memlab.compaction.receipts import Receipt
    from memlab.compaction.reclaim import Space, Vacuumed, space, vacuum
    from memlab.compaction.restorer import restore
    from memlab.compaction.supersession import plan_supersession

__all__ = [
    "CapEffect",
    "Cost",
    "Drop",
    "Plan",
    "Receipt",
    "Space",
    "Vacuumed",
    "apply",
    "archived_plans",
    "archived_rows",
    "cap_effect",
    "cost_of",
    "drop_archived",
    "dropped_plans",
    "export_archived",
    "finish",
    "plan",
    "plan_supersession",
    "restore",
    "space",
    "survivors",
    "vacuum",
    "what_drops",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "applier": "apply finish",
        "contents": "archived_plans archived_rows dropped_plans export_archived",
        "drops": "Drop drop_archived what_drops",
        "effects": "CapEffect Cost cap_effect cost_of survivors",
        "planner": "plan",
        "plans": "Plan",
        "receipts": "Receipt",
        "reclaim": "Space Vacuumed space vacuum",
        "restorer": "restore",
        "supersession": "plan_supersession",
    },
)
