"""Folders that git tracks, with commits at times that a test chooses."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

NO_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
"""Environment in which git ignores the settings of the user."""
AUTHOR = {
    "GIT_AUTHOR_NAME": "n",
    "GIT_AUTHOR_EMAIL": "n",
    "GIT_COMMITTER_NAME": "n",
    "GIT_COMMITTER_EMAIL": "n",
}

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    """Return the time of the given days after the start."""
    return START + timedelta(days=number)


class Repository:
    """A repository around a folder, or a clone of one."""

    def __init__(self, folder: Path, *, root: Path | None = None) -> None:
        self.folder = folder
        self.root = root or folder
        folder.mkdir(parents=True, exist_ok=True)
        if not (self.root / ".git").exists():
            self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, at: datetime = START) -> str:
        """Run git without user settings and return its output."""
        moment = f"{at.timestamp():.0f} +0000"
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        result = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=os.environ | AUTHOR | dates | NO_CONFIG,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return result.stdout.decode(errors="surrogateescape")

    def commit(self, number: float) -> str:
        """Commit all files at the given days after the start; return the commit's hash."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "c", at=day(number))
        return self.git("rev-parse", "HEAD").strip()

    def clone(self, folder: Path, *options: str) -> "Repository":
        """Clone the repository."""
        self.git("clone", "-q", *options, f"file://{self.root}", str(folder))
        return Repository(folder)
