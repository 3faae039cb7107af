"""One table of what `memlab.recommend_cap` says of many stores.

    python .ci/bench/size_all.py [STORE ...]

Without a store: the bundled two years and 300 issues, an empty store, one with one memory, and the
recorded histories and agent stores where they lie beside the checkout.
"""

import importlib.util
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import memlab
from memlab.evidence.past import load_past

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
PROVENANCE = memlab.MemoryProvenance(None, "agent", source_task_ref="issue:#1")
ITEM = memlab.MemoryItem("m1", memlab.MemoryKind.EPISODIC, "shipped", "", PROVENANCE)


def stores(folder: Path) -> list[Path]:
    """Make or find the stores that are there without being asked for."""
    with memlab.SqliteMemoryStore(folder / "empty.db"):
        pass
    with memlab.SqliteMemoryStore(folder / "one-memory.db") as one:
        one.put(ITEM)
    bundled = [memlab.store_path(name) for name in ("two_years", "three_hundred_issues")]
    return [*bundled, folder / "empty.db", folder / "one-memory.db", *recorded(folder)]


def recorded(folder: Path) -> list[Path]:
    """Build the recorded stores; none where they are not there."""
    tool = SHARED / "tools" / "build_store.py"
    if not tool.exists():
        return []
    spec = importlib.util.spec_from_file_location("build_store", tool)
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    made = []
    for source in sorted((SHARED / "data").glob("*-memories.csv.gz")):
        name = source.name.removesuffix("-memories.csv.gz")
        items = build.history_items if name.startswith("history-") else build.agent_items
        with closing(sqlite3.connect(folder / f"{name}.db")) as connection, connection:
            connection.executescript(build.SCHEMA)
            marks = ", ".join("?" * 14)
            rows = items(SHARED / "data", name)
            connection.executemany(f"INSERT INTO memory_items VALUES ({marks})", rows)
        made.append(folder / f"{name}.db")
    return made


def line(store: Path) -> str:
    """Return what is recommended for a store."""
    advice = memlab.recommend_cap(load_past(store))
    low, high = advice.interval or (0, 0)
    served = advice.served_limits or (0.0, 0.0)
    cap = "–" if advice.keep_recent is None else f"{advice.keep_recent:,}"
    return (
        f"{store.stem:<22} {advice.memories:>8,} {advice.references:>6,} {advice.verdict:<21} "
        f"{cap:>6} {low:>6,} {high:>7,} {served[0]:>6.1%} {served[1]:>6.1%} {advice.weight:>6.0%} "
        f"{advice.missed}/{advice.measured}"
    )


def main() -> None:
    """Print the table."""
    print(
        f"{'store':<22} {'prunable':>8} {'refs':>6} {'verdict':<21} {'cap':>6} {'low':>6} "
        f"{'high':>7} {'served':>13} {'own':>6} missed"
    )
    with tempfile.TemporaryDirectory() as folder:
        for store in [Path(each) for each in sys.argv[1:]] or stores(Path(folder)):
            print(line(store), flush=True)


if __name__ == "__main__":
    main()
