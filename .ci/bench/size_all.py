"""Print a table of what `memlab.recommend_cap` recommends for many stores.

    python .ci/bench/size_all.py [STORE ...]

The default stores are the bundled two years and 300 issues, an empty store, one with one memory,
and the recorded histories and agent stores if they lie beside the checkout.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from recorded import build_store, recorded_names

import memlab
from memlab.evidence.past import load_past

ITEM: Final = memlab.MemoryItem(
    "m1",
    memlab.MemoryKind.EPISODIC,
    "shipped",
    "",
    memlab.MemoryProvenance(None, "agent", source_task_ref="issue:#1"),
)


def default_stores(folder: Path) -> list[Path]:
    """List the bundled stores, and build the others in a folder."""
    empty = folder / "empty.db"
    memlab.SqliteMemoryStore(empty).close()
    one_memory = folder / "one-memory.db"
    with memlab.SqliteMemoryStore(one_memory) as store:
        store.put(ITEM)
    stores = [memlab.store_path("two_years"), memlab.store_path("three_hundred_issues")]
    stores += [empty, one_memory]
    for name in recorded_names("agent-*") + recorded_names("history-*"):
        stores.append(build_store(name, folder / f"{name}.db"))
    return stores


def table_row(store: Path) -> str:
    """Write the recommendation for a store as a row of the table."""
    advice = memlab.recommend_cap(load_past(store))
    low, high = advice.interval or (0, 0)
    served_low, served_high = advice.served_limits or (0.0, 0.0)
    cap = "–" if advice.keep_recent is None else f"{advice.keep_recent:,}"
    return (
        f"{store.stem:<22} {advice.memories:>8,} {advice.references:>6,} {advice.verdict:<21} "
        f"{cap:>6} {low:>6,} {high:>7,} {served_low:>6.1%} {served_high:>6.1%} "
        f"{advice.weight:>6.0%} {advice.missed}/{advice.measured}"
    )


def main() -> None:
    """Print the table."""
    print(
        f"{'store':<22} {'prunable':>8} {'refs':>6} {'verdict':<21} {'cap':>6} {'low':>6} "
        f"{'high':>7} {'served':>13} {'own':>6} missed"
    )
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(argument) for argument in sys.argv[1:]]
        for store in stores or default_stores(Path(folder)):
            print(table_row(store), flush=True)


if __name__ == "__main__":
    main()
