"""What plans and receipts say of policies, sizes and moments."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memlab.items import Size


def in_words(policy: Mapping[str, Any]) -> str:
    """Return a policy's data as one line.

    Examples
    --------
    >>> in_words({"policy": "recent", "keep": 50, "by": "position"})
    "recent(keep=50, by='position')"
    """
    settings = (
        f"{name}={_word(value)}"
        for name, value in policy.items()
        if name != "policy" and value is not None
    )
    return f"{policy.get('policy')}({', '.join(settings)})"


def minute(moment: datetime) -> str:
    """Return a moment to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def command(name: str, store: Path | str, *arguments: str) -> str:
    """Return a command of memlab's as a person can copy it."""
    return shlex.join(["memlab", name, str(store), *arguments])


def counted(count: int, kind: str = "") -> str:
    """Return how many memories, of a kind such as ``"load-bearing "``, in words."""
    return f"{count:,} {kind}{'memory' if count == 1 else 'memories'}"


def change(before: Size, after: Size) -> str:
    """Return what a size becomes."""
    return (
        f"{counted(before.memories)}, {before.tokens:,} tokens -> "
        f"{counted(after.memories)}, {after.tokens:,} tokens"
    )


def share(part: Size, whole: Size) -> str:
    """Return a part of a size, with its shares."""
    memories = part.memories / whole.memories if whole.memories else 0.0
    tokens = part.tokens / whole.tokens if whole.tokens else 0.0
    return (
        f"{part.memories:,} of {counted(whole.memories)} ({memories:.1%}), "
        f"{part.tokens:,} of {whole.tokens:,} tokens ({tokens:.1%})"
    )


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return in_words(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return repr(value)
