"""The two kinds of recommended numbers, a cap and a budget: their names, options and columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from memlab.settings import NUMBERS


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberKind:
    """A kind of number that a recommendation holds.

    Attributes
    ----------
    field : str
        Name of the field of a recommendation with the safe number; also that of the setting.
    noun : str
        Name of the number in a sentence.
    unit : str
        Unit of the number, in the plural.
    policy : str
        Name of the policy that enforces the number.
    compact_options : tuple of str
        Options of ``memlab compact`` before the number.
    size_options : tuple of str
        Options of ``memlab size`` for this kind of number.
    share_columns : mapping of str to str
        Columns of shares in the printed table; for each, the column of the curve.
    cost_columns : mapping of str to str
        Columns of sizes in the printed table; for each, the column of the curve.
    column_note : str
        Explanation of these columns below the table.
    """

    field: str
    noun: str
    unit: str
    policy: str
    compact_options: tuple[str, ...]
    size_options: tuple[str, ...]
    share_columns: Mapping[str, str]
    cost_columns: Mapping[str, str]
    column_note: str

    def policy_with(self, number: int) -> dict[str, Any]:
        """Return the policy that enforces a number, by its keys in a settings file."""
        return {"name": self.policy, NUMBERS[self.policy]: number}


CAP: Final = NumberKind(
    field="keep_recent",
    noun="cap",
    unit="episodes",
    policy="recent",
    compact_options=("--keep-recent",),
    size_options=(),
    share_columns={"own": "served_own", "others": "served_elsewhere"},
    cost_columns={
        "memories": "boot_memories",
        "tokens": "boot_tokens",
        "tokens at 95%": "boot_tokens_p95",
        "would go": "pruned",
        "days kept": "days",
    },
    column_note=(
        "; own, others: by this store's references alone, by other projects' alone; memories and "
        "tokens: at start, if the store is compacted to that cap now; tokens at 95%: the number "
        "that 95% of past starts would not have exceeded under that cap"
    ),
)
"""A number of prunable memories to keep."""

BUDGET: Final = NumberKind(
    field="max_tokens",
    noun="budget",
    unit="tokens",
    policy="tokens",
    compact_options=("--policy", "tokens", "--max-tokens"),
    size_options=("--unit", "tokens"),
    share_columns={"so far": "served_observed"},
    cost_columns={"kept": "kept", "would go": "pruned", "days kept": "days"},
    column_note="",
)
"""A number of tokens that all memories may take."""
