"""Does to hostile files whatever memlab can do, in a process that one of them may end."""

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

from invariants import result_of

from memlab import clock
from proof.readers import READERS, STATE, state_of

SEED = "seed"
"""The file that says which seed a process was at."""
PATIENCE = 60.0
"""Seconds after which a store counts as one that hangs."""


class Examiner:
    """Has readers use what somebody else wrote, and looks for what they did beside that."""

    def __init__(self, name: str, folder: Path) -> None:
        os.umask(0)
        vars(clock)["_STEP"] = 0  # nobody else writes here
        self.case, self.outside, self.whole = (folder / n for n in ("case", "outside", "whole"))
        self.outside.mkdir()
        (self.outside / "canary").write_text("somebody's")
        self.case.mkdir(mode=0o750)
        self.reader = READERS[name](self.case)
        self.reader.make()
        for path in self.case.rglob("*"):
            path.chmod(path.stat().st_mode & 0o750)
        self.case.rename(self.whole)

    def verdict(self, seed: int) -> str | None:
        shutil.rmtree(self.case, ignore_errors=True)
        shutil.copytree(self.whole, self.case, symlinks=True)
        rng, name = random.Random(seed), f"seed {seed}"
        try:
            name += f" ({self.reader.spoil(self.outside / 'canary', rng)})"
            for path in self.case.rglob("*"):
                os.utime(path, (seed, seed), follow_symlinks=False)
            before, outside = state_of(self.case), state_of(self.outside)
            result_of(rng.choice(self.reader.looks()))
            assert state_of(self.case) == before
            result_of(rng.choice(self.reader.changes()))
            self.reader.check()
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


def examine(examiner_in: Callable[[Path], Examiner], seeds: range, folder: Path) -> list[str]:
    """Examine seeds, and return what is wrong; one that takes too long ends the process."""
    with tempfile.TemporaryDirectory(dir=folder) as room:
        examiner = examiner_in(Path(room))
        warnings.simplefilter("error")
        found = []
        for seed in seeds:
            (folder / SEED).write_text(str(seed))
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            found.append(examiner.verdict(seed))
        signal.setitimer(signal.ITIMER_REAL, 0)
    return [each for each in found if each is not None]
