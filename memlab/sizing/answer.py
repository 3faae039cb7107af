"""The answer of a recommendation in sentences: one template for each case."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

from memlab.growth.context import CONTEXT_WINDOW, NO_ALERT_BELOW
from memlab.sizing.backtest import TrackRecord, Verdict, clusters_needed
from memlab.sizing.curve import CurvePoint
from memlab.sizing.lifetimes import Floor
from memlab.sizing.number_kinds import NumberKind
from memlab.sizing.prior import others_in_words
from memlab.text import command, counted, percent, percent_as_given

SMALL_SAVING: Final = 0.1
"""Share of the tokens below which a saving is too small to compact for."""

_USUAL_SHARES: Final = {0.5: "half", 0.75: "three in four", 0.8: "eight in ten",
                          0.9: "nine in ten", 0.95: "19 in 20", 0.99: "99 in 100"}  # fmt: skip
"""Shares that are written in words; others are written in percent."""


class AnswerCase(StrEnum):
    """The kinds of answers, each with a template: what to do, and why."""

    NOTHING = "nothing"
    FLOOR = "floor"
    CHOOSE = "choose"
    TOO_SMALL = "too-small"
    TOO_LITTLE_EVIDENCE = "too-little-evidence"
    KEEP_ALL = "keep-all"
    SMALL_SAVING = "small-saving"
    COMPACT = "compact"
    SEARCHED_KEEP_ALL = "searched-keep-all"
    SEARCHED = "searched"


TEMPLATES: Final[Mapping[AnswerCase, str]] = {
    AnswerCase.NOTHING: "Nothing to remove: {memories}, {loaded_tokens}.",
    AnswerCase.FLOOR: (
        "Load-bearing memories take {floor} tokens, the budget is {budget}: no {word} helps."
        "{see_floor}"
    ),
    AnswerCase.CHOOSE: (
        "No {word} meets both the target and the limit of {budget} tokens. Serving {target} later "
        "needs takes {target_number} ({target_tokens} tokens{when}), which would serve "
        "{target_served}. Within the limit{when_it_holds}, {fitting_number} ({fitting_tokens} "
        "tokens{when}) would serve {fitting_served}."
    ),
    AnswerCase.TOO_SMALL: (
        "Keep all for now: a start takes only {loaded_tokens} ({share_now} of {window})."
    ),
    AnswerCase.TOO_LITTLE_EVIDENCE: (
        "Keep all for now: there is too little evidence that any {word} serves {target} later "
        "needs. It takes {needed} needs of this store's own to show that, and {own_needs} are "
        "known.{see_evidence}"
    ),
    AnswerCase.KEEP_ALL: (
        "Keep all for now: the safe {word} is {safe_units}, and the store has {all_units}."
        "{likely_in_full}"
    ),
    AnswerCase.SMALL_SAVING: (
        "Keep all for now: the safe {word}, {safe}, saves only {saved} of {loaded_tokens} a start."
        "{likely_in_full}"
    ),
    AnswerCase.COMPACT: (
        "Compacting to {safe} cuts a start today from {loaded} to {left} tokens ({share_now} → "
        "{share_left} of {window}). {assurance}{likely_in_short}"
    ),
    AnswerCase.SEARCHED_KEEP_ALL: (
        "Keep all for now: {only_loaded} loaded at start, the safe {word} is {safe_units}, and the "
        "store has {all_units}.{likely_in_full}"
    ),
    AnswerCase.SEARCHED: (
        "{Only_loaded} loaded at start; deleting {deleted}, all but {safe}, frees {saved} of "
        "{loaded_tokens} of the store. {assurance}{likely_in_full}"
    ),
}
"""The template of each case."""

REMARKS: Final[Mapping[Verdict, str]] = {
    Verdict.FROM_OTHER_PROJECTS: (
        " This rests mostly on data of {others}: the store itself has shown {own}."
    ),
    Verdict.HORIZON_TOO_SHORT: (
        " Later needs here often reach back to the oldest memories: size again as the store grows."
    ),
    Verdict.HISTORY_INCOMPLETE: (
        " Memories were deleted without an archive, so more may be needed than is known."
    ),
}
"""The sentence that follows an answer with a number, by verdict."""

POOR_RECORD: Final = (
    " But at {missed} of {measured} earlier moments this rule would have missed the target."
)
"""The sentence that follows an answer with a number, if the backtest was poor."""

_CASES_WITH_REMARK: Final = {
    AnswerCase.KEEP_ALL,
    AnswerCase.SMALL_SAVING,
    AnswerCase.COMPACT,
    AnswerCase.SEARCHED_KEEP_ALL,
    AnswerCase.SEARCHED,
}
"""Cases whose answer is followed by a remark on the evidence, and on a start above the window."""

_CASES_ABOUT_WINDOW: Final = {AnswerCase.NOTHING, AnswerCase.TOO_LITTLE_EVIDENCE}
"""Cases whose answer only says if the load-bearing memories alone exceed the window."""

LOADED_CASES_THAT_KEEP_ALL: Final = {
    AnswerCase.TOO_SMALL,
    AnswerCase.TOO_LITTLE_EVIDENCE,
    AnswerCase.KEEP_ALL,
    AnswerCase.SMALL_SAVING,
}
"""Cases of memories that a start loads, whose answer is to keep all of them."""

CASES_THAT_KEEP_ALL: Final = {*LOADED_CASES_THAT_KEEP_ALL, AnswerCase.SEARCHED_KEEP_ALL}
"""Cases whose answer is to keep all memories."""

CASES_WITHOUT_LIKELY: Final = {AnswerCase.TOO_SMALL, AnswerCase.TOO_LITTLE_EVIDENCE}
"""Cases that keep all memories and whose answer does not name the likely number."""

BY_USE: Final = (
    "Retiring by use cuts a start today from {loaded} to at most {left} tokens ({share_now} → "
    "{share_left} of {window}). Within as many tokens, it would have served {served} of the past "
    "reads ({low} to {high}), and keeping the newest memories {newest}."
)
"""The template of an answer that retires memories by use."""


class Recommended(Protocol):
    """The facts of a recommendation that an answer is made from, as ``Advice`` has them."""

    @property
    def verdict(self) -> Verdict:
        """Outcome of the recommendation."""

    @property
    def keep_recent(self) -> int | None:
        """Number of prunable memories that the safe number keeps now."""

    @property
    def number(self) -> int | None:
        """The safe number: a cap or a budget."""

    @property
    def likely(self) -> int | None:
        """The likely number."""

    @property
    def number_to_keep_all(self) -> int:
        """Smallest number that keeps all present memories."""

    @property
    def loaded(self) -> int:
        """Tokens of a start now."""

    @property
    def boot_tokens(self) -> int | None:
        """A start under the safe number."""

    @property
    def likely_boot_tokens(self) -> int | None:
        """A start under the likely number."""

    @property
    def prunable(self) -> int:
        """Number of prunable memories."""

    @property
    def floor(self) -> Floor:
        """Size of the load-bearing memories."""

    @property
    def trade(self) -> Sequence[CurvePoint]:
        """The point for the target and that for the budget, if they conflict; else empty."""

    @property
    def target(self) -> float:
        """Share of later needs to serve."""

    @property
    def confidence(self) -> float:
        """Confidence of the limit that meets the target."""

    @property
    def token_budget(self) -> int | None:
        """Largest start, in tokens, of the goal."""

    @property
    def references(self) -> int:
        """Number of later needs of the store's own."""

    @property
    def cluster_count(self) -> int:
        """Number of clusters among them."""

    @property
    def projects(self) -> int:
        """Number of other projects."""

    @property
    def measured(self) -> int:
        """Splits of the backtest."""

    @property
    def missed(self) -> int:
        """Splits that missed the target."""

    @property
    def loads_at_start(self) -> bool:
        """Whether the agent loads prunable memories at start."""

    @property
    def load_bearing_at_start(self) -> int:
        """Tokens of loaded load-bearing memories, if prunable ones are only searched."""

    @property
    def context_window(self) -> int:
        """Tokens of the context window."""

    @property
    def name_for_commands(self) -> str:
        """Name of the store as a command takes it, if known."""

    @property
    def number_kind(self) -> NumberKind:
        """The kind of the number, with its names and options."""

    def number_in_words(self, number: int) -> str:
        """Return a cap or a budget in words."""


def answer_of(advice: Recommended) -> str:
    """Return the answer of a recommendation in sentences.

    Each sentence can be understood on its own. The number is that of the next command.

    Parameters
    ----------
    advice : Recommended
        The recommended cap or budget.

    Returns
    -------
    str
        One to four sentences. ``advice.answer`` is the same text.

    Examples
    --------
    >>> import memlab
    >>> advice = memlab.recommend_cap(memlab.store_path("two_years"), token_budget=100)
    >>> print(answer_of(advice).partition(":")[0])
    Load-bearing memories take 6,491 tokens, the budget is 100
    """
    case = case_of(advice)
    answer = TEMPLATES[case].format_map(_template_values(advice))
    if case in _CASES_ABOUT_WINDOW and floor_exceeds_window(advice):
        answer += _floor_above_window(advice)
    if case not in _CASES_WITH_REMARK:
        return answer
    answer += _above_window(advice)
    remark = REMARKS.get(advice.verdict, "")
    answer += remark.format(others=others_in_words(advice.projects), own=_own_needs(advice))
    if TrackRecord(advice.measured, advice.missed).poor:
        answer += POOR_RECORD.format(missed=advice.missed, measured=advice.measured)
    return answer


def case_of(advice: Recommended) -> AnswerCase:
    """Return the case of an answer."""
    if advice.verdict is Verdict.FLOOR_EXCEEDS_BUDGET:
        return AnswerCase.FLOOR
    if advice.verdict is Verdict.TARGET_EXCEEDS_BUDGET:
        return AnswerCase.CHOOSE
    if advice.number is None or not advice.prunable:
        return AnswerCase.NOTHING
    if advice.verdict is Verdict.TARGET_BEYOND_HORIZON:
        return AnswerCase.TOO_LITTLE_EVIDENCE
    keeps_all = advice.number >= advice.number_to_keep_all
    if not advice.loads_at_start:
        return AnswerCase.SEARCHED_KEEP_ALL if keeps_all else AnswerCase.SEARCHED
    return _case_if_loaded(advice, keeps_all=keeps_all)


def _case_if_loaded(advice: Recommended, *, keeps_all: bool) -> AnswerCase:
    """Return the case of an answer with a number, for memories that are loaded at start."""
    if advice.loaded < NO_ALERT_BELOW:
        return AnswerCase.TOO_SMALL
    if keeps_all:
        return AnswerCase.KEEP_ALL
    if _saved(advice) < SMALL_SAVING * advice.loaded:
        return AnswerCase.SMALL_SAVING
    return AnswerCase.COMPACT


def answer_by_use(
    *,
    loaded: int,
    budget: int,
    served: float,
    limits: tuple[float, float],
    newest: float,
    context_window: int = CONTEXT_WINDOW,
) -> str:
    """Return the answer that retires memories by use.

    Parameters
    ----------
    loaded : int
        Tokens of a start today.
    budget : int
        Tokens of a start under the recommended budget.
    served : float
        Share of the reads that were served within the budget by use.
    limits : tuple of float
        Limits of this share.
    newest : float
        Share of the reads that the newest memories served within the budget.
    context_window : int
        Tokens of the context window.
    """
    low, high = limits
    return BY_USE.format(
        loaded=f"{loaded:,}",
        left=f"{budget:,}",
        share_now=_share(loaded, context_window),
        share_left=_share(budget, context_window),
        window=f"{context_window:,}",
        served=percent(served, 0),
        low=percent(low, 0),
        high=percent(high, 0),
        newest=percent(newest, 0),
    )


FLEET: Final = (
    "The safe caps of {sized} cut their starts today from {loaded} to {left} tokens together; "
    "{deleted} would go."
)
"""The template of the answer for many stores."""

FLEET_KEEPS_ALL: Final = (
    "Keep all for now: the safe caps of {sized} save {saved} of {loaded_tokens} at start together."
)
"""The template for many stores whose caps save less than a tenth."""

FLEET_NOTHING: Final = "No store has a cap: {stores} looked at, {loaded_tokens} at start together."
"""The template for many stores without a cap."""


def answer_of_fleet(*, stores: int, sized: int, loaded: int, left: int, deleted: int) -> str:
    """Return the answer for many stores in a sentence.

    Parameters
    ----------
    stores, sized : int
        The stores that were read, and those of them that have a safe cap.
    loaded, left : int
        Tokens of all their starts together, now and under the safe caps.
    deleted : int
        Memories that the safe caps would delete.

    Examples
    --------
    >>> print(answer_of_fleet(stores=3, sized=3, loaded=900_000, left=70_000, deleted=1_200))
    The safe caps of 3 stores cut their starts today from 900,000 to 70,000 tokens together; \
1,200 memories would go.
    >>> print(answer_of_fleet(stores=1, sized=0, loaded=400, left=400, deleted=0))
    No store has a cap: 1 store looked at, 400 tokens at start together.
    """
    template = FLEET
    if not sized:
        template = FLEET_NOTHING
    elif loaded - left < SMALL_SAVING * loaded or not deleted:
        template = FLEET_KEEPS_ALL
    return template.format(
        stores=counted(stores, "stores"),
        sized=counted(sized, "stores"),
        loaded=f"{loaded:,}",
        loaded_tokens=counted(loaded, "tokens"),
        left=f"{left:,}",
        saved=f"{loaded - left:,}",
        deleted=counted(deleted),
    )


def share_in_words(share: float) -> str:
    """Return a share in words where it is a usual one, else in percent.

    >>> share_in_words(0.9), share_in_words(0.87)
    ('nine in ten', '87% of')
    """
    words = _USUAL_SHARES.get(round(share, 9))
    if words is None:
        return f"{percent_as_given(share)} of"
    if words == "half":
        return "half of"
    return words


def chances_in_words(confidence: float) -> str:
    """Return a probability as chances.

    >>> chances_in_words(0.9), chances_in_words(0.87), chances_in_words(0.99999)
    ('nine chances in ten', '87 chances in 100', '99.99 chances in 100')
    """
    words = _USUAL_SHARES.get(round(confidence, 9))
    if words is None:
        words = f"{percent_as_given(confidence).removesuffix('%')} in 100"
    numerator, _, denominator = words.rpartition(" in ")
    return f"{numerator} chances in {denominator}"


def _template_values(advice: Recommended) -> dict[str, str]:
    """Return the values of the placeholders in the templates, by name."""
    values = {
        "memories": counted(advice.floor.memories + advice.prunable),
        "loaded": f"{advice.loaded:,}",
        "loaded_tokens": counted(advice.loaded, "tokens"),
        "floor": f"{advice.floor.tokens:,}",
        "word": advice.number_kind.noun,
        "window": f"{advice.context_window:,}",
        "share_now": _share(advice.loaded, advice.context_window),
        "target": share_in_words(advice.target),
        "own_needs": f"{advice.cluster_count:,}",
        "needed": f"{clusters_needed(advice.target, advice.confidence):,}",
        "when": " at start today" if advice.loads_at_start else " today",
        "see_floor": "",
        "see_evidence": "",
    }
    only_loaded = "nothing is"
    if advice.load_bearing_at_start:
        tokens = counted(advice.load_bearing_at_start, "tokens")
        only_loaded = f"only load-bearing memories, {tokens}, are"
    values["only_loaded"] = only_loaded
    values["Only_loaded"] = only_loaded[0].upper() + only_loaded[1:]
    store = advice.name_for_commands
    if store:
        floor = command("floor", store)
        values["see_floor"] = f" {floor} shows which they are."
        explain = command("size", store, *advice.number_kind.size_options, "--explain")
        values["see_evidence"] = f" {explain} says how to collect them."
    if advice.token_budget is not None:
        values["budget"] = f"{advice.token_budget:,}"
    values.update(_trade_values(advice))
    values.update(_number_values(advice))
    return values


def _trade_values(advice: Recommended) -> dict[str, str]:
    """Return the template values for both ends of the trade, if target and budget conflict."""
    values = {"when_it_holds": ""}
    if advice.trade:
        _, fitting = advice.trade
        values["when_it_holds"] = when_limit_holds(fitting, loads_at_start=advice.loads_at_start)
    for name, point in zip(("target", "fitting"), advice.trade, strict=False):
        low, high = point.served_limits
        limits = f"{percent(low, 0)} to {percent(high, 0)}"
        values[f"{name}_tokens"] = f"{point.boot_tokens:,}"
        values[f"{name}_number"] = advice.number_in_words(point.number)
        values[f"{name}_served"] = f"{percent(point.served, 0)} of them ({limits})"
    return values


def when_limit_holds(fitting: CurvePoint, *, loads_at_start: bool) -> str:
    """Return the phrase for the times at which a cap keeps a token budget, to follow "fits".

    The text is empty for a number in tokens, which is the limit itself.
    """
    if fitting.boot_tokens_p95 is None:
        return ""
    moments = "starts" if loads_at_start else "moments"
    return f" today and at 95% of past {moments}"


def _number_values(advice: Recommended) -> dict[str, str]:
    """Return the template values for the safe and the likely number, if there is a number."""
    number = advice.number
    if number is None:
        return {}
    tokens_left = advice.boot_tokens or 0
    values = {
        "safe": advice.number_in_words(number),
        "safe_units": counted(number, advice.number_kind.unit),
        "all_units": f"{advice.number_to_keep_all:,}",
        "deleted": counted(max(0, advice.prunable - (advice.keep_recent or 0)), "episodes"),
        "saved": f"{_saved(advice):,}",
        "left": f"{tokens_left:,}",
        "share_left": _share(tokens_left, advice.context_window),
        "assurance": _assurance(advice),
        "likely_in_short": "",
        "likely_in_full": "",
    }
    likely = advice.likely
    tokens = advice.likely_boot_tokens
    if likely is None or tokens is None:
        return values
    if likely < number and tokens < advice.loaded:
        # After a sentence on what the safe number cuts, "it" is clear; elsewhere it is not.
        values["likely_in_short"] = f" {likely:,} would cut it to {tokens:,}, at even odds."
        reduced_part = "a start" if advice.loads_at_start else "the store"
        keeping = f" Keeping {counted(likely, advice.number_kind.unit)}"
        values["likely_in_full"] = (
            f"{keeping} would cut {reduced_part} to {counted(tokens, 'tokens')}, at even odds."
        )
    return values


def _assurance(advice: Recommended) -> str:
    """Return the sentence on the probability that the safe number meets the target."""
    chances = chances_in_words(advice.confidence)
    target = share_in_words(advice.target)
    return f"There are {chances} that {target} later needs are still served."


def exceeds_window(advice: Recommended) -> bool:
    """Return whether a start takes more than the context window.

    It is the start under the safe number, or today's if there is no such number.
    """
    tokens = advice.loaded if advice.boot_tokens is None else advice.boot_tokens
    return advice.loads_at_start and tokens > advice.context_window


def floor_exceeds_window(advice: Recommended) -> bool:
    """Return whether the load-bearing memories alone take more than the context window."""
    return exceeds_window(advice) and advice.floor.tokens > advice.context_window


def _above_window(advice: Recommended) -> str:
    """Return the sentence for a safe number that leaves more than the context window, else ""."""
    if not exceeds_window(advice):
        return ""
    window = advice.context_window
    if floor_exceeds_window(advice):
        return _floor_above_window(advice)
    left = advice.boot_tokens or 0
    noun = advice.number_kind.noun
    sentence = (
        f" The safe {noun} still leaves {left:,} tokens, more than the context window of {window:,}"
    )
    likely = advice.likely
    tokens = advice.likely_boot_tokens
    if likely is None or tokens is None or tokens >= left:
        return f"{sentence}."
    fits = "fits" if tokens <= window else "does not fit either"
    return f"{sentence}; the likely {noun} of {likely:,} leaves {tokens:,}, which {fits}."


def _floor_above_window(advice: Recommended) -> str:
    """Return the sentence for load-bearing memories that alone exceed the context window."""
    floor = counted(advice.floor.tokens, "tokens")
    return (
        f" Load-bearing memories alone take {floor}, more than the context window of "
        f"{advice.context_window:,}: no {advice.number_kind.noun} changes that."
    )


def _saved(advice: Recommended) -> int:
    """Return the number of tokens that the safe number saves now."""
    return max(0, advice.loaded - (advice.boot_tokens or 0))


def _own_needs(advice: Recommended) -> str:
    """Return the number of later needs that the store itself has shown, in words."""
    if not advice.references:
        return "no later need yet"
    return counted(advice.references, "later needs")


def _share(tokens: int, window: int) -> str:
    """Return tokens as a share of the context window.

    >>> _share(44_000, 200_000), _share(893, 200_000), _share(30, 200_000)
    ('22%', '0.4%', '<0.1%')
    """
    share = tokens / window
    return percent(share, decimals=1 if share < 0.01 else 0)
