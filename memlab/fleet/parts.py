"""Results kept as they come, so that a run that was stopped goes on where it was.

A folder of Parquet files, each with some stores, a row each; ``pandas.read_parquet(folder)`` reads
them all. A part appears whole or not at all, so a kill costs what was not yet written, and that is
done again.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from memlab.errors import MemlabError
from memlab.files import ALONE, read_whole, whole_file, write_whole
from memlab.fleet.names import Member
from memlab.fleet.outcomes import Outcome

ROWS: Final = 500
"""Stores of a part, at most."""
BYTES: Final = 16_000_000
"""Bytes of a part's values at which it is written, about."""
SECONDS: Final = 2.0
"""How long a result waits to be written, about."""

_ARROW: Final = {
    "str": pa.string(),
    "Int64": pa.int64(),
    "Float64": pa.float64(),
    "boolean": pa.bool_(),
    "bytes": pa.large_binary(),
    "datetime64[us, UTC]": pa.timestamp("us", "UTC"),
}
_OWN: Final = (("store", pa.string()), ("error", pa.string()), ("error_kind", pa.string()))
_STATE: Final = ("store_state", pa.string())
_RUN: Final = "_run.json"
"""Parquet readers pass over names that begin with an underscore."""


class Kept(NamedTuple):
    """A result that was kept, and where.

    Attributes
    ----------
    part : Path
        The file that holds it.
    outcome : Outcome
        Without its large values.
    """

    part: Path
    outcome: Outcome[Any]


class Parts:
    """A folder of results of one question.

    Parameters
    ----------
    folder : Path
        Made when it is missing.
    row : type
        The named tuple of a value.
    dtypes : mapping of str to str
        Its fields; ``bytes`` for one that is large and read only when it is asked for.
    question : mapping
        What was asked, as JSON values: results of another question are refused.
    rests_on : str, optional
        What results rest on besides the stores; None for what is another thing every time. A run
        that was stopped goes on; after one that finished, and rested on something else, every store
        is asked anew.

    Raises
    ------
    MemlabError
        When the folder cannot be used, or holds something else.
    """

    def __init__(
        self,
        folder: Path,
        row: Any,
        dtypes: Mapping[str, str],
        *,
        question: Mapping[str, Any],
        rests_on: str | None = "",
    ) -> None:
        self.folder, self._row, self._dtypes = Path(folder), row, dtypes
        fields = [(name, _ARROW[dtype]) for name, dtype in dtypes.items()]
        self._schema = pa.schema([*_OWN[:1], *fields, *_OWN[1:], _STATE])
        self._waiting: list[dict[str, Any]] = []
        self._bytes, self._since = 0, monotonic()
        self.fresh = self._begin({**question, "columns": self._schema.names}, rests_on)

    def __len__(self) -> int:
        return len(self.files())

    def files(self) -> list[Path]:
        """Return the parts in the order in which they were written."""
        return sorted(self.folder.glob("part-*.parquet"))

    def kept(self) -> dict[str, Kept]:
        """Return what is there, by store; of two results the later."""
        small = [name for name in self._schema.names if self._dtypes.get(name) != "bytes"]
        found: dict[str, Kept] = {}
        for part in self.files():
            for row in _read(part, small).to_pylist():
                found[row["store"]] = Kept(part, self._outcome(row))
        return found

    def keep_only(self, names: set[str], kept: Mapping[str, Kept]) -> None:
        """Drop all results but those of these stores: each store has one row, or none."""
        for part in self.files():
            table = _read(part, None)
            stay = [
                name in names and kept[name].part == part for name in table["store"].to_pylist()
            ]
            if not any(stay):
                part.unlink()
            elif not all(stay):
                self._write(part, table.filter(pa.array(stay)))

    def add(self, outcome: Outcome[Any]) -> None:
        """Keep a result; it is on the disk within a moment, and after :meth:`flush`."""
        value = {} if outcome.value is None else outcome.value._asdict()
        row = {"store": outcome.name, "error": outcome.error or None}
        row |= {"error_kind": outcome.kind or None, "store_state": outcome.state, **value}
        self._waiting.append(row)
        self._bytes += sum(len(each) for each in value.values() if isinstance(each, bytes))
        late = monotonic() - self._since > SECONDS
        if late or len(self._waiting) >= ROWS or self._bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits to be written."""
        if self._waiting:
            files = self.files()
            number = int(files[-1].stem.removeprefix("part-")) + 1 if files else 1
            table = pa.Table.from_pylist(self._waiting, self._schema)
            self._write(self.folder / f"part-{number:06}.parquet", table)
        self._waiting, self._bytes, self._since = [], 0, monotonic()

    def finish(self) -> None:
        """Note that every store has its result."""
        self.flush()
        self._note({**self._read_note(), "finished": True})

    def still_holds(self, member: Member, outcome: Outcome[Any]) -> bool:
        """Whether a result need not be asked for again.

        An error always is. A store that cannot be seen from here is, once the run that asked for it
        has finished.
        """
        if outcome.error:
            return False
        now = member.state()
        return outcome.state == now if now else not self.fresh

    def _outcome(self, row: dict[str, Any]) -> Outcome[Any]:
        value = None
        if row["error"] is None:
            value = self._row(*(row.get(name) for name in self._row._fields))
        return Outcome(
            row["store"], value, row["error"] or "", row["error_kind"] or "", row["store_state"]
        )

    def _write(self, part: Path, table: Any) -> None:
        with whole_file(part, limit=ALONE) as draft:
            pq.write_table(table, draft, compression="zstd")

    def _begin(self, question: Mapping[str, Any], rests_on: str | None) -> bool:
        """Whether this is a new run: the last one finished, or there was none."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MemlabError(
                f"{self.folder} cannot be made ({error.strerror or error}); name another folder"
            ) from error
        before = self._read_note()
        if not before and any(self.folder.iterdir()):
            raise MemlabError(f"{self.folder} holds other files; name a new folder")
        if before and before.get("question") != question:
            raise MemlabError(
                f"{self.folder} holds the answers to another question, or those of another memlab; "
                "name a new folder, or add --fresh to throw these away"
            )
        fresh = bool(before.get("finished", True))
        if fresh and (rests_on is None or before.get("rests_on", "") != rests_on):
            self.keep_only(set(), {})
        asked = {"question": question, "rests_on": rests_on}
        self._note({"memlab_fleet_run": 1, **asked, "finished": False})
        return fresh

    def _read_note(self) -> dict[str, Any]:
        if not (self.folder / _RUN).exists():
            return {}
        try:
            found = json.loads(read_whole(self.folder / _RUN))
        except ValueError:
            return {}
        return found if isinstance(found, dict) and "memlab_fleet_run" in found else {}

    def _note(self, note: Mapping[str, Any]) -> None:
        write_whole(self.folder / _RUN, json.dumps(note, indent=1) + "\n", limit=ALONE)


def index_of(folder: Path) -> dict[str, Path]:
    """Return which part of a folder holds each store."""
    found: dict[str, Path] = {}
    for part in sorted(folder.glob("part-*.parquet")):
        found |= dict.fromkeys(_read(part, ["store"])["store"].to_pylist(), part)
    return found


def column_of(part: Path, name: str) -> dict[str, Any]:
    """Return a field of every store of a part."""
    table = _read(part, ["store", name])
    return dict(zip(table["store"].to_pylist(), table[name].to_pylist(), strict=True))


def start_over(folder: Path) -> None:
    """Remove the results in a folder, and nothing else.

    Raises
    ------
    MemlabError
        When it holds other things.
    """
    for file in _own_files(folder):
        file.unlink()


def _own_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from folder.glob("part-*.parquet")
        if (folder / _RUN).exists():
            yield folder / _RUN


def _read(part: Path, columns: list[str] | None) -> Any:
    try:
        return pq.read_table(part, columns=columns, partitioning=None)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise MemlabError(f"{part} cannot be read ({error}); remove it, and run again") from error
