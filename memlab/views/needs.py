"""Explanations for questions that a store cannot answer, each with a command that helps."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memlab.arguments import expect
from memlab.clock import now_utc
from memlab.columns import ACTIVE, KIND, LOAD_BEARING, LOADED_AT_START, PRUNABLE
from memlab.errors import UnansweredError
from memlab.sources.base import Source
from memlab.sources.opening import SourceLike, harvestable, open_source
from memlab.text import command

if TYPE_CHECKING:
    from memlab.evidence.store_history import StoreHistory

_WIDTH: Final = 88
"""Width of an explanation in characters. Notebooks break a longer line inside a word."""
_SPACE: Final = "\N{NO-BREAK SPACE}"
"""The space inside a command, so that no line is broken there."""


def unanswered(store: SourceLike, need: str) -> str:
    """Explain why a store cannot answer a question, and name a command that helps.

    Parameters
    ----------
    store : path, URL, SqliteMemoryStore or Source
        The store.
    need : str
        The need that the store does not meet: a key of `NEEDS`.

    Returns
    -------
    str
        The explanation.

    Raises
    ------
    ValueError
        If `need` is unknown.

    Examples
    --------
    >>> import memlab
    >>> print(unanswered(memlab.store_path("two_years"), "reads").partition(",")[0])
    0 reads of this store are known
    """
    expect(need, str, call="memlab.views.unanswered", name="need")
    if need not in NEEDS:
        raise ValueError(f"need must be one of {', '.join(sorted(NEEDS))}, not {need!r}")
    explanation = NEEDS[need](open_source(store))
    lines = textwrap.wrap(explanation, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_SPACE, " ")


def _command(name: str, *arguments: object) -> str:
    """Return a command in which no line is broken."""
    return command(name, *arguments).replace(" ", _SPACE)


def require(store: SourceLike, *needs: str, log: str | Path | None = None) -> None:
    """Check that a store can answer a question now. Notebooks call this function.

    A notebook is made for the contents of its store. If the store has changed since, the notebook
    stops here with an explanation, instead of an error about missing data.

    Parameters
    ----------
    store : path, URL, SqliteMemoryStore or Source
        The store.
    *needs : str
        The needs of the next cells: keys of `NEEDS`.
    log : str or Path, optional
        The access log of the notebook.

    Raises
    ------
    UnansweredError
        If the store does not meet a need; the message is that of :func:`unanswered`.
    ValueError
        If a need is unknown.

    Examples
    --------
    >>> import memlab
    >>> memlab.views.require(memlab.store_path("two_years"), "memories", "prunable")
    """
    for need in needs:
        expect(need, str, call="memlab.views.require", name="needs")
        if need not in NEEDS:
            raise ValueError(f"needs must be of {', '.join(sorted(NEEDS))}, not {need!r}")
    from memlab.evidence.store_history import StoreHistory

    source = open_source(store)
    history = StoreHistory.of(source, log, call="memlab.views.require", now=now_utc())
    met = needs_met(history.with_references())
    for need in needs:
        if need not in met:
            raise UnansweredError(unanswered(source, need))


def needs_met(history: "StoreHistory") -> frozenset[str]:
    """Return the needs that a store meets, judged by its history with references."""
    from memlab.evidence.past import present_rows

    source = history.source
    past = history.past
    present = present_rows(past)
    meets = {
        "copy": source is not None and source.is_native_format,
        "folder": source is not None and source.index is not None,
        "memories": len(past) > 0,
        "present": len(present) > 0,
        "present-prunable": bool(present[PRUNABLE].any()),
        "prunable": bool(past[PRUNABLE].any()),
        "load-bearing": bool((present[ACTIVE] & present[LOAD_BEARING]).any()),
        "loaded": LOADED_AT_START not in present or bool(present[LOADED_AT_START].any()),
        "references": len(history.references) > 0,
        "reads": bool((history.references[KIND] == "log").any()),
    }
    return frozenset(need for need, is_met in meets.items() if is_met)


def _memories(source: Source) -> str:
    """Explain a store without memories."""
    return f"0 memories are in this store yet: {_command('show', source.name)} shows it again."


def _present(source: Source) -> str:
    """Explain a store whose memories were all deleted."""
    archive = _command("archive", source.name)
    return (
        f"0 memories are in this store now, all were deleted: {archive} lists the plans that "
        f"did, and their undo; {_command('show', source.name)} shows the store again."
    )


def _prunable(source: Source) -> str:
    """Explain a store without prunable memories."""
    rows = _command("rows", source.name)
    return f"0 memories of this store are prunable, so no rule deletes one: {rows} lists all."


def _load_bearing(source: Source) -> str:
    """Explain a store without load-bearing memories."""
    rows = _command("rows", source.name)
    return f"0 memories of this store are load-bearing, so it has no floor: {rows} lists all."


def _references(source: Source) -> str:
    """Explain a store without references."""
    return (
        "0 later needs of this store's memories are known, neither references nor reads: "
        f"{_how_to_log(source)}"
    )


def _reads(source: Source) -> str:
    """Explain a store without known reads."""
    problem = (
        "0 reads of this store are known, and only a log of reads shows whether age or use matters"
    )
    return f"{problem}: {_how_to_log(source)}"


def _how_to_log(source: Source) -> str:
    """Return an instruction to get an access log for a store."""
    if any(source.scheme in system.schemes for system in harvestable()):
        return f"{_command('harvest', source.name)} collects the reads that agents have recorded."
    return (
        'let its runtime log each read with memlab.AccessLog("reads.jsonl").add(memory_id), then '
        f"{_command('size', source.name, '--log', 'reads.jsonl')}."
    )


def _copy(source: Source) -> str:
    """Explain a store that cannot be copied, so that no deletion can be tried out."""
    plan = _command("compact", source.name, "--keep-recent", 50)
    if source.read_only_reason:
        return (
            "0 memories are deleted: memlab cannot delete from this store. "
            f"{plan} names the setting that can."
        )
    return (
        "0 memories were deleted: this notebook works on a copy, and only an agent's SQLite file "
        f"can be copied. {plan} shows what would be deleted; --apply archives it first."
    )


def _folder(source: Source) -> str:
    """Explain a store without an index that is cut."""
    return (
        "0 lines of an index are loaded: only a folder of Claude Code's memory has such an index. "
        f"{_command('show', source.name)} shows what a start loads from this store."
    )


def _loaded(source: Source) -> str:
    """Explain a store from which no start loads anything."""
    need = _command("rows", source.name, "--by", "need")
    return (
        "0 tokens of this store are loaded at start: its memories are only searched. "
        f"{need} lists those that were needed most."
    )


NEEDS: Final[dict[str, Callable[[Source], str]]] = {
    "memories": _memories,
    "present": _present,
    "present-prunable": _prunable,
    "prunable": _prunable,
    "load-bearing": _load_bearing,
    "references": _references,
    "reads": _reads,
    "copy": _copy,
    "folder": _folder,
    "loaded": _loaded,
}
"""Needs of notebook cells, each with the function that explains why a store does not meet it."""
