"""The steps of applying and of undoing a plan, after each of which a process may be killed."""

from typing import Final

APPLY_STEPS: Final = (
    "locked",
    "checked",
    "copied",
    "archived",
    "deleted",
    "verified",
    "committed",
    "recorded",
)
RESTORE_STEPS: Final = ("locked", "checked", "inserted", "verified", "committed", "recorded")
