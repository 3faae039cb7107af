"""Other systems' own code, which writes the stores that adapters are tested on.

``.ci/owners.sh`` installs it into a folder that ``MEMLAB_OWNERS`` names. Each runs in a process of
its own, with a home of its own; where one is not installed its tests are skipped by name.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

OWNERS = Path(os.environ.get("MEMLAB_OWNERS") or Path.home() / ".cache" / "memlab-owners")
BUN = OWNERS / "claude-mem/node_modules/@oven/bun-linux-x64/bin/bun"
STORE = OWNERS / "claude-mem/node_modules/claude-mem/plugin/sqlite/SessionStore.js"

needs_claude_mem = pytest.mark.skipif(
    not (BUN.is_file() and STORE.is_file()),
    reason="claude-mem is not installed: .ci/owners.sh FOLDER, and MEMLAB_OWNERS=FOLDER",
)

_WRITE = """
const { SessionStore } = await import(process.argv[2]);
const [file, sessions] = JSON.parse(await Bun.stdin.text());
const store = new SessionStore(file);
for (const { session, project, observations, prompts } of sessions) {
  const id = store.createSDKSession(`content-${session}`, project, prompts?.[0] ?? "a prompt");
  store.ensureMemorySessionIdRegistered(id, session);
  for (const [n, text] of (prompts ?? []).entries())
    store.saveUserPrompt(`content-${session}`, n + 1, text);
  for (const { at, ...each } of observations)
    store.storeObservations(session, project, [each].flat(), null, 1, 100, at, "a-model");
}
store.close();
"""


def observation(title: str, **fields: Any) -> dict[str, Any]:
    """An observation as claude-mem's worker hands it to its store."""
    return {
        "type": "discovery",
        "title": title,
        "subtitle": "in one line",
        "facts": ["a fact", "another"],
        "narrative": f"what happened with {title}",
        "concepts": ["gotcha"],
        "files_read": ["a.py"],
        "files_modified": [],
        **fields,
    }


def write_claude_mem(file: Path, sessions: list[dict[str, Any]]) -> Path:
    """Let claude-mem's own code make a database, or write into one.

    A session has ``session``, ``project`` and ``observations``, each with ``at`` in milliseconds.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    script = file.parent / "write.mjs"
    script.write_text(_WRITE)
    home = {"HOME": str(file.parent), "CLAUDE_MEM_DATA_DIR": str(file.parent)}
    subprocess.run(
        [str(BUN), str(script), str(STORE)],
        input=json.dumps([str(file), sessions]).encode(),
        env={"PATH": os.environ["PATH"], **home},
        check=True,
        capture_output=True,
    )
    script.unlink()
    return file
