"""Sizing in words: what a verdict means, what a number rests on, what would change it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memlab.evidence.posterior import in_words
from memlab.evidence.prior import SEEN, doublings_beyond
from memlab.sizing.curve import Prepared, Sizing
from memlab.sizing.record import Record, Verdict, sittings_needed
from memlab.sources.base import Source
from memlab.sources.opening import is_harvestable, is_named_by_scheme
from memlab.text import command, counted

if TYPE_CHECKING:
    import pandas as pd

MEANING: Final = {
    Verdict.OK: "the target is met by a cap, and the evidence reaches that far",
    Verdict.NOTHING_PRUNABLE: "no memory that a cap could delete was written yet",
    Verdict.FROM_OTHER_PROJECTS: "most of what this rests on are other projects' references",
    Verdict.CAP_HAS_NO_EFFECT: (
        "the target takes at least as many as there are prunable: keep all for now"
    ),
    Verdict.FLOOR_EXCEEDS_BUDGET: (
        "load-bearing memories alone pass the token budget: no cap can help"
    ),
    Verdict.TARGET_EXCEEDS_BUDGET: "no cap meets both the target and the token budget: choose",
    Verdict.HORIZON_TOO_SHORT: (
        "references keep reaching the far end of this history: the cap will grow with the store"
    ),
    Verdict.TARGET_BEYOND_HORIZON: (
        "no evidence is fine enough for so high a target, this store's nor other projects'"
    ),
    Verdict.HISTORY_INCOMPLETE: (
        "memories were deleted without an archive, and with them what a number would rest on"
    ),
}


MEANING_OF_BUDGETS: Final = MEANING | {
    Verdict.OK: "the target is met by a budget, and the evidence reaches that far",
    Verdict.CAP_HAS_NO_EFFECT: "all that is loaded today fits: keep all for now",
    Verdict.HORIZON_TOO_SHORT: (
        "references keep reaching the far end of this history: the budget will grow with the store"
    ),
}


def rule_in_short(what: str, target: float, confidence: float) -> str:
    """Say how a number is found, in a few words."""
    return (
        f"safe: the smallest {what} that serves {target:.0%} with {confidence:.0%} confidence; "
        "likely: with even odds"
    )


def rule_in_words(target: float, confidence: float) -> str:
    """Say how a cap is found."""
    return (
        f"safe is the smallest cap whose lower {confidence:.0%} limit serves {target:.0%} of "
        "references until the store has doubled, likely the smallest whose estimate does; how far "
        "back its own references reach and those of other projects, weighed by how many it has"
    )


def evidence_in_words(weight: float, references: int, projects: int) -> str:
    """Say how much of a number is whose."""
    others = f"{in_words(projects)} other projects"
    own = counted(references, "references")
    if not weight:
        return (
            f"all from {others}; {own} of this store's own" if references else f"all from {others}"
        )
    return f"{weight:.0%} from this store ({own}), {1 - weight:.0%} from {others}"


def record_in_words(record: Record) -> str:
    """Say how often numbers met their target and how much larger than needed; nothing of none."""
    if record.waste is None:
        return ""
    met = f"met {record.measured - record.missed} of {record.measured}"
    return f"{met}, at {record.waste:.1f} times the need (median)"


def poor_in_words(record: Record) -> str:
    """Say beside a number that too many earlier ones missed; nothing where they did not."""
    if not record.poor:
        return ""
    return f"but at {record.missed} of {record.measured} earlier cuts such a number missed"


def backtest_in_words(backtest: "pd.DataFrame", track_record: str) -> list[str]:
    """Say how caps chosen on the past would have done afterwards."""
    measured = backtest[backtest["reached"].notna()]
    if measured.empty:
        return ["track record: none; no reference followed an earlier cut of this history"]
    return [
        f"track record: of caps chosen at a cut, in the fifth after it: {track_record}",
        *(
            f"  at {row['cut']:.0%}: chose {row['keep_recent']:,}, needed {row['needed']:,}, "
            f"served {row['achieved']:.1%} of {row['references']:,}"
            for _, row in measured.iterrows()
        ),
    ]


def what_is_missing(sizing: Prepared) -> Iterator[str]:
    """Say what of its past a store is sized without."""
    gaps = sizing.gaps
    if sizing.lacks_past:
        yield (
            f"this frame holds what is left: what was deleted from {sizing.source} is in its "
            "archive; give the store's path in place of the frame, and the whole past counts"
        )
    if gaps.memories:
        were = "was" if gaps.memories == 1 else "were"
        newest = f"the newest of them at position {gaps.newest:,}"
        yield f"{counted(gaps.memories)} {were} deleted without an archive, {newest}"


def what_would_change(
    sizing: Sizing, verdict: Verdict, cap: int | None, target: float, token_budget: int | None
) -> Iterator[str]:
    """Say what would lead to another answer, the most telling first."""
    yield from what_is_missing(sizing)
    yield from _by_gaps(sizing)
    yield from _by_verdict(sizing, verdict, cap, target, token_budget)
    if verdict is not Verdict.NOTHING_PRUNABLE:
        if missing := missing_references(sizing):
            yield (
                f"with {counted(missing, 'more references')} or reads, this store's own would "
                "weigh as much as other projects'"
            )
        yield from _on_the_limits(sizing)
    served = len(sizing.references) - int(sizing.references.losable.sum())
    if served:
        yield f"{counted(served, 'references')} to load-bearing memories, which every cap serves"
    if sizing.misfits:
        misfits = counted(sizing.misfits, "references")
        yield f"left out: {misfits} to something that is no earlier memory of this store"
    if sizing.history.unknown_ends:
        yield (
            f"replaced by something that is not there or older: "
            f"{counted(sizing.history.unknown_ends, 'memories')}, counted as active throughout, "
            "which can only ask for a larger cap"
        )


def missing_references(sizing: Prepared) -> int:
    """Return how many references there would have to be more for the store's own to weigh half."""
    return max(0, round(sizing.law.worth) - sizing.references.sittings)


def to_know_more(
    store: str, source: Source | None, missing: int, *, by: Sequence[str], log: Path | None
) -> Iterator[str]:
    """Say how a store comes to a number of its own; `log` is one that it has already."""
    yield (
        f"for a number of its own, this store needs {missing:,} more references or reads "
        "of its memories:"
    )
    named_by_kind = is_named_by_scheme(store)
    harvested = source.like or store if source is not None and named_by_kind else store
    reads = Path("reads.jsonl")
    if "://" not in store:
        reads = Path(harvested).with_suffix(".reads.jsonl")
    if log is not None:
        reads = reads if log.suffix == ".csv" else log
        yield "  let the runtime go on writing them down, each time it reads a memory:"
    else:
        if source is not None and is_harvestable(harvested):
            harvest = command("harvest", harvested, "-o", reads)
            yield f"  {harvest}    reads in what agents already write"
        yield f"  {command('size', store, *by, '--log', reads)}    with what was read"
        yield "  or let the runtime write it, each time it reads a memory:"
    yield f"    log = memlab.AccessLog({str(reads)!r})"
    yield "    log.add(memory_id)"


def _by_gaps(sizing: Sizing) -> Iterator[str]:
    """Say which bound on the number was taken for what was deleted without an archive."""
    if sizing.lost:
        yield (
            f"{sizing.lost:,} references name nothing that is known: they count as misses, to "
            "memories at least as old as the newest of these"
        )
    if sizing.gaps.cap is not None:
        yield (
            f"the number is no smaller than {sizing.gaps.cap:,}, all prunable memories written "
            "since: the cap that deleted those memories was no larger, and what it lost would ask "
            "for more; memlab compact, and SqliteMemoryStore(path, archive=True), keep what they "
            "delete"
        )


def _on_the_limits(sizing: Sizing) -> Iterator[str]:
    if sizing.ahead.widened > 1.05:
        yield (
            f"limits are {sizing.ahead.widened - 1:.0%} wider than references alone give: "
            "what followed earlier cuts of this history was a surprise"
        )
    if doublings_beyond(sizing.ahead.memories):
        fewest, most = SEEN
        yield (
            f"other projects were seen at {fewest:,} to {counted(most, 'memories')}, not at "
            f"{sizing.ahead.memories:,}: limits are wider for it"
        )


def _by_verdict(
    sizing: Sizing, verdict: Verdict, cap: int | None, target: float, token_budget: int | None
) -> Iterator[str]:
    match verdict:
        case Verdict.CAP_HAS_NO_EFFECT if cap == sizing.ahead.everything:
            yield "nothing less than all is known to serve so many; a lower target takes fewer"
        case Verdict.CAP_HAS_NO_EFFECT:
            yield (f"ask again when the store holds more than {cap:,} prunable memories")
        case Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = sizing.present.floor.tokens
            yield (
                f"load-bearing memories take {counted(floor, 'tokens')} now, "
                f"{max(floor - (token_budget or 0), 0):,} over the budget: supersede or shorten "
                "decisions and skills, or raise the budget"
            )
        case Verdict.TARGET_EXCEEDS_BUDGET:
            yield "a larger budget, a lower target, or the cap that fits and what it serves"
        case Verdict.HORIZON_TOO_SHORT:
            yield (
                f"{sizing.references.far_share:.0%} of references reach beyond half of what there "
                f"was, more than the {1 - target:.0%} that the target leaves; size again as the "
                "store grows, or aim lower"
            )
        case Verdict.TARGET_BEYOND_HORIZON:
            needed = sittings_needed(target, sizing.confidence)
            yield (
                f"{counted(needed, 'references')} of its own can show a target of {target:.4g}; "
                f"{sizing.references.sittings:,} are known"
            )
        case Verdict.HISTORY_INCOMPLETE | Verdict.NOTHING_PRUNABLE:
            pass  # said already
        case _:
            yield f"a lower target than {target:.0%} takes a smaller cap, a higher one a larger"
    if cap is not None and cap >= sizing.present.prunable > 0:
        yield "a cap of that many would delete nothing today"
