"""A process that does to hostile stores whatever memlab can do, and says how each of them ended.

It is sent a seed over a pipe, and answers with what went wrong: None, or a text. A crash and a
silence are answers too.
"""

import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from invariants import Row, assert_load_bearing_rows_stay, copies_of, salvaged_rows_of

from memlab import KeepRecent, MemlabError, Plan, SqliteMemoryStore, apply, load, plan, restore
from memlab.cli import main
from memlab.doctor import diagnose
from proof.mutations import mutate
from proof.stores import NOW, copy_aside, files_of, make_store


class Examiner:
    """Mutates copies of a store, uses them and looks for what is lost.

    Parameters
    ----------
    folder : Path
        Where to work.
    """

    def __init__(self, folder: Path) -> None:
        self.pristine = make_store(folder / "pristine.db", rows=25, page_size=512)
        self.plan = plan(self.pristine, KeepRecent(5), now=NOW)
        self.case, self.aside = folder / "case", folder / "aside"

    def verdict(self, seed: int) -> str | None:
        """Return what is wrong about how a mutated store ended, None if nothing is."""
        shutil.rmtree(self.case, ignore_errors=True)
        self.case.mkdir()
        store = Path(shutil.copy(self.pristine, self.case / "memory.db"))
        name = f"seed {seed}"
        try:
            name += f" ({mutate(store, seed)})"
            for file in self.case.iterdir():
                os.utime(file, (0, 0))  # readers wait for what has just been written to settle
            made = self._read(store)
            self._compact(copy_aside(store, self.aside.with_name("compacted")))
            self._apply(store, made)
        except Exception:  # noqa: BLE001 - whatever it is, it is the answer
            return f"{name}: {traceback.format_exc()}"
        return None

    def _read(self, store: Path) -> Plan | None:
        """Use a store in all ways that must not change it; return a plan if one can be made."""
        files = files_of(store.parent)
        result_of(lambda: load(store, with_body=True, on_bad_row="keep"))
        shown = CliRunner().invoke(main, ["show", str(store)])
        if shown.exception and not isinstance(shown.exception, SystemExit):
            raise shown.exception
        assert shown.exit_code in (0, 2)
        str(diagnose(store))
        made = result_of(lambda: plan(store, KeepRecent(5), now=NOW))
        after = files_of(store.parent)
        assert {name for name in {*files, *after} if files.get(name) != after.get(name)} == set()
        return made

    def _compact(self, store: Path) -> None:
        before = self._salvaged(store)
        result_of(lambda: compacted(store))
        assert_load_bearing_rows_stay(before, self._salvaged(store))

    def _apply(self, store: Path, made: Plan | None) -> None:
        before = self._salvaged(store)
        for each in (made, self.plan):  # the other was made before the store was changed
            if each is None:
                continue
            receipt = result_of(lambda each=each: apply(each, store=store))
            self._check_nothing_lost(before, store)
            if receipt is not None:
                result_of(lambda receipt=receipt: restore(receipt))
                self._check_nothing_lost(before, store)

    def _salvaged(self, store: Path) -> dict[int, Row]:
        return salvaged_rows_of(copy_aside(store, self.aside))

    def _check_nothing_lost(self, before: dict[int, Row], store: Path) -> None:
        """Each row that could be read can be, or the archive has it if it may go."""
        after = self._salvaged(store)
        assert_load_bearing_rows_stay(before, after)
        missing = {p: row for p, row in before.items() if after.get(p) != row}
        copies = copies_of(self.aside / store.name) if missing else {}
        assert all(row in copies.get(position, []) for position, row in missing.items())


def compacted(store: Path) -> int:
    """Compact as an agent's runtime does."""
    with SqliteMemoryStore(store) as opened:
        return opened.compact_episodic(5)


def result_of(use: Callable[[], Any]) -> Any:
    """Return a result; None where an error of memlab says why there is none."""
    try:
        return use()
    except MemlabError:
        return None


def serve(connection: Connection, scratch: str) -> None:
    """Examine seeds until the other end is closed."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder, suppress(EOFError):
        examiner = Examiner(Path(folder))
        warnings.simplefilter("error")
        while True:
            connection.send(examiner.verdict(connection.recv()))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), sys.argv[2])
