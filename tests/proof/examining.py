"""Does to hostile stores whatever memlab can do, in a process that one of them may end."""

import os
import random
import shutil
import signal
import stat
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner
from invariants import Row, assert_load_bearing_rows_stay, copies_of, result_of, salvaged_rows_of

from memlab import KeepRecent, Plan, apply, clock, load, plan, restore
from memlab.cli import main
from memlab.upkeep.health import doctor
from proof.mutations import MUTATIONS, mutate
from proof.readers import READERS, STATE, state_of
from proof.stores import NOW, copy_aside, files_of, make_store
from proof.tasks import compact

SEED = "seed"
"""The file that says which seed a process was at."""
PATIENCE = 60.0
"""Seconds after which a store counts as one that hangs."""


class Examiner:
    """Mutates copies of a store, uses them and looks for what is lost."""

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
            made = self._read(store, LOOKS[seed // len(MUTATIONS) % len(LOOKS)])
            self._compact(copy_aside(store, self.aside.with_name("compacted")))
            self._apply(store, made)
        except Exception:  # noqa: BLE001 - whatever it is, it is the answer
            return f"{name}: {traceback.format_exc()}"
        return None

    def _read(self, store: Path, look: Callable[[Path], object]) -> Plan | None:
        """Use a store in ways that must not change it; return a plan if one can be made."""
        files = files_of(store.parent)
        result_of(lambda: look(store))
        made = result_of(lambda: plan(store, KeepRecent(5), now=NOW))
        assert files_of(store.parent) == files
        return made

    def _compact(self, store: Path) -> None:
        before = self._salvaged(store)
        result_of(lambda: compact(store, 5))
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


def _show(store: Path) -> None:
    shown = CliRunner().invoke(main, ["show", str(store)])
    if shown.exception and not isinstance(shown.exception, SystemExit):
        raise shown.exception
    assert shown.exit_code in (0, 2)


LOOKS = (
    _show,
    lambda store: load(store, with_body=True, on_bad_row="keep"),
    lambda store: str(doctor(store)),
)
"""All that only reads; each case does one of it, and each mutation meets them in turn."""


class ReaderExaminer:
    """Has readers use what somebody else wrote, and looks for what they did beside that."""

    def __init__(self, folder: Path) -> None:
        os.umask(0)
        vars(clock)["_STEP"] = 0  # nobody else writes here
        self.case, self.outside = folder / "case", folder / "outside"
        self.outside.mkdir()
        (self.outside / "canary").write_text("somebody's")
        self.readers = [reader(self.case) for reader in READERS.values()]
        for reader in self.readers:
            self.case.mkdir(mode=0o750)
            reader.make()
            for path in self.case.rglob("*"):
                path.chmod(path.stat().st_mode & 0o750)
            self.case.rename(folder / reader.name)

    def verdict(self, seed: int) -> str | None:
        """Return what is wrong about how files of a seed were read, None if nothing is."""
        reader = self.readers[seed % len(self.readers)]
        shutil.rmtree(self.case, ignore_errors=True)
        shutil.copytree(self.case.with_name(reader.name), self.case, symlinks=True)
        rng, name = random.Random(seed), f"seed {seed}, {reader.name}"
        try:
            name += f" ({reader.spoil(self.outside / 'canary', rng)})"
            for path in self.case.rglob("*"):
                os.utime(path, (seed, seed), follow_symlinks=False)
            before, outside = state_of(self.case), state_of(self.outside)
            result_of(rng.choice(reader.looks()))
            assert state_of(self.case) == before
            result_of(rng.choice(reader.changes()))
            reader.check()
            assert state_of(self.outside) == outside
            self._check_rights(before, state_of(self.case))
        except Exception:  # noqa: BLE001 - whatever it is, it is the answer
            return f"{name}: {traceback.format_exc()}"
        return None

    def _check_rights(self, before: dict[str, STATE], after: dict[str, STATE]) -> None:
        """No file that was made has more rights than its folder, or than one that it replaces."""
        owners = {(os.geteuid(), os.getegid()), *(state[2:4] for state in before.values())}
        there = {state[0] for state in before.values()}
        for name, (number, mode, user, group, _) in after.items():
            if number not in there:
                replaced = before[name][1] if name in before else 0
                assert not mode & 0o7000, name
                assert not stat.S_IMODE(mode) & ~(replaced | 0o750), name
                assert (user, group) in owners, name


def examine(kind: type[Examiner | ReaderExaminer], seeds: range, folder: Path) -> list[str]:
    """Examine seeds, and return what is wrong; one that takes too long ends the process."""
    with tempfile.TemporaryDirectory(dir=folder) as room:
        examiner = kind(Path(room))
        warnings.simplefilter("error")
        found = []
        for seed in seeds:
            (folder / SEED).write_text(str(seed))
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            found.append(examiner.verdict(seed))
        signal.setitimer(signal.ITIMER_REAL, 0)
    return [each for each in found if each is not None]
