"""Plan, apply, archive, restore, and the room on the disk.

Loads nothing until a name is used: a script that only reads a plan pays for no frame.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.compaction.applying import apply, finish
    from memlab.compaction.contents import (
        archived_plans,
        archived_rows,
        dropped_plans,
        export_archived,
    )
    from memlab.compaction.dropping import Drop, drop_archived, what_drops
    from memlab.compaction.planning import plan
    from memlab.compaction.plans import Plan
    from memlab.compaction.preview import CapEffect, cap_effect, survivors
    from memlab.compaction.receipts import Receipt
    from memlab.compaction.reclaim import Space, Vacuumed, space, vacuum
    from memlab.compaction.restoring import restore
    from memlab.compaction.superseding import plan_supersession

__all__ = [
    "CapEffect",
    "Drop",
    "Plan",
    "Receipt",
    "Space",
    "Vacuumed",
    "apply",
    "archived_plans",
    "archived_rows",
    "cap_effect",
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
        "applying": "apply finish",
        "contents": "archived_plans archived_rows dropped_plans export_archived",
        "dropping": "Drop drop_archived what_drops",
        "planning": "plan",
        "plans": "Plan",
        "preview": "CapEffect cap_effect survivors",
        "receipts": "Receipt",
        "reclaim": "Space Vacuumed space vacuum",
        "restoring": "restore",
        "superseding": "plan_supersession",
    },
)
