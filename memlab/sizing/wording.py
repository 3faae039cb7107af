"""Sizing in words: what a verdict means, what a number rests on, what would change it."""

from collections.abc import Iterator
from typing import Final

from memlab.evidence.elsewhere import in_words
from memlab.evidence.law import SEEN, doublings_beyond
from memlab.sizing.choice import Affordable, Verdict, sittings_needed
from memlab.sizing.curve import Sizing
from memlab.sizing.record import Record
from memlab.text import counted

MEANING: Final = {
    Verdict.OK: "the target is met by a cap, and the evidence reaches that far",
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


def rule_in_short(target: float, confidence: float) -> str:
    """Say how the number is found, in a few words."""
    return f"the smallest cap that serves {target:.0%}, with {confidence:.0%} confidence"


def rule_in_words(target: float, confidence: float) -> str:
    """Say how the number is found."""
    return (
        f"the smallest cap whose lower {confidence:.0%} limit serves {target:.0%} of references "
        "until the store has doubled; how far back its own references reach and those of other "
        "projects, weighed by how many it has"
    )


def evidence_in_words(weight: float, references: int, projects: int) -> str:
    """Say how much of a number is whose."""
    others = f"{in_words(projects)} other projects"
    own = "1 reference" if references == 1 else f"{references:,} references"
    if not weight:
        return (
            f"all from {others}; {own} of this store's own" if references else f"all from {others}"
        )
    return f"{weight:.0%} from this store ({own}), {1 - weight:.0%} from {others}"


def poor_in_words(record: Record) -> str:
    """Say beside a number that too many earlier ones missed; nothing where they did not."""
    if not record.poor:
        return ""
    return f"but at {record.missed} of {record.measured} earlier cuts such a number missed"


def what_would_change(
    sizing: Sizing, found: Affordable, target: float, token_budget: int | None
) -> Iterator[str]:
    """Say what would lead to another answer, the most telling first."""
    yield from _by_gaps(sizing)
    yield from _by_verdict(sizing, found, target, token_budget)
    missing = missing_references(sizing)
    if missing:
        yield (
            f"with {counted(missing, 'more references')} or reads, this store's own would weigh as "
            "much as other projects'"
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


def missing_references(sizing: Sizing) -> int:
    """Return how many references there would have to be more for the store's own to weigh half."""
    return max(0, round(sizing.law.worth) - sizing.references.sittings)


def without_archive(memories: int) -> str:
    """Say how many memories were deleted without an archive."""
    were = "was" if memories == 1 else "were"
    return f"{counted(memories, 'memories')} {were} deleted without an archive"


def _by_gaps(sizing: Sizing) -> Iterator[str]:
    """Say what was deleted without an archive, and which bound on the number was taken for it."""
    gaps = sizing.gaps
    if not gaps.memories:
        return
    yield f"{without_archive(gaps.memories)}, the newest of them at position {gaps.newest:,}"
    if sizing.lost:
        yield (
            f"{sizing.lost:,} references name nothing that is known: they count as misses, to "
            "memories at least as old as the newest of these"
        )
    if gaps.cap is not None:
        yield (
            f"the number is no smaller than {gaps.cap:,}, all prunable memories written since: the "
            "cap that deleted those memories was no larger, and what it lost would ask for more; "
            "memlab compact, and SqliteMemoryStore(path, archive=True), keep what they delete"
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
            f"other projects were seen at {fewest:,} to {most:,} memories, not at "
            f"{sizing.ahead.memories:,}: limits are wider for it"
        )


def _by_verdict(
    sizing: Sizing, found: Affordable, target: float, token_budget: int | None
) -> Iterator[str]:
    match found.verdict:
        case Verdict.CAP_HAS_NO_EFFECT if found.keep_recent == sizing.ahead.everything:
            yield "nothing less than all is known to serve so many; a lower target takes fewer"
        case Verdict.CAP_HAS_NO_EFFECT:
            yield (
                f"ask again when the store holds more than {found.keep_recent:,} prunable memories"
            )
        case Verdict.FLOOR_EXCEEDS_BUDGET:
            floor = sizing.present.floor.tokens
            yield (
                f"load-bearing memories take {floor:,} tokens now, "
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
                f"{needed:,} references of its own can show a target of {target:.4g}; "
                f"{sizing.references.sittings:,} are known"
            )
        case Verdict.HISTORY_INCOMPLETE:
            pass  # said already
        case _:
            yield f"a lower target than {target:.0%} takes a smaller cap, a higher one a larger"
    if found.keep_recent is not None and found.keep_recent >= sizing.present.prunable > 0:
        yield "a cap of that many would delete nothing today"
