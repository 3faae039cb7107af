"""What ``memlab size`` prints around its recommendation: caps, track record, what to do next."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.text import Sheet, Table

if TYPE_CHECKING:
    import pandas as pd

    from memlab.sizing import Advice
    from memlab.sources.abilities import SettingOnly
    from memlab.sources.base import Source


def cap_sheet(caps: "pd.DataFrame", advice: "Advice") -> Sheet:
    """Return a table of caps; the recommended one is marked."""
    header = (
        *("keep_recent", "served", "limits", "own", "others", "memories", "tokens"),
        *("tokens at 95%", "would go", "days"),
    )
    rows = [
        (
            f"> {cap:,}" if cap == advice.keep_recent else f"{cap:,}",
            _share(row["served"]),
            f"{_share(row['low'])} to {_share(row['high'])}",
            _share(row["served_own"]),
            _share(row["served_elsewhere"]),
            int(row["boot_memories"]),
            int(row["boot_tokens"]),
            int(row["boot_tokens_p95"]),
            int(row["pruned"]),
            f"{row['days']:,.0f}",
        )
        for cap, row in caps.iterrows()
    ]
    remark = (
        "own, others: by this store's references alone, by other projects' alone; memories and "
        "tokens: loaded at start now, and in 95% of starts at most, under that cap"
    )
    return Sheet("", [], [Table("", header, rows, remark)])


def track_record(backtest: "pd.DataFrame") -> list[str]:
    """Say how caps chosen on the past would have done afterwards."""
    measured = backtest[backtest["reached"].notna()]
    if measured.empty:
        return ["track record: none; no reference followed an earlier cut of this history"]
    met = f"{measured['reached'].sum()} of {len(measured)} met the target in the fifth after it"
    return [
        f"track record: a cap chosen on the history up to a cut; {met}",
        *(
            f"  at {row['cut']:.0%}: chose {row['keep_recent']:,}, needed {row['needed']:,}, "
            f"served {row['achieved']:.1%} of {row['references']:,}"
            for _, row in measured.iterrows()
        ),
    ]


def reference_counts(counts: "pd.DataFrame") -> str:
    """Say where references were found, and what was not counted as one."""
    from memlab.evidence.wording import counted_in_words, not_counted_in_words

    found = ", ".join(f"{count:,} {name}" for name, _, count in counted_in_words(counts))
    left_out = ", ".join(f"{count:,} {why}" for why, count in not_counted_in_words(counts))
    no_later_need = f"; no later need, so not counted: {left_out}" if left_out else ""
    return f"references: {found or 'none'}{no_later_need}"


def log_lines(
    log: "pd.DataFrame | None", counts: "pd.DataFrame", chances: "pd.Series | None"
) -> list[str]:
    """Say what an access log says of this store's memories, and what in it is no read of them."""
    from memlab.evidence.chances import describe_chances
    from memlab.evidence.reads import describe_log

    if log is None or chances is None:
        return []
    unknown = counts["dangling"]["log"]
    if unknown and unknown == len(log):
        return ["the log: not one line names a memory of this store; is it another store's log?"]
    return [f"by the log: {describe_chances(chances)}", *describe_log(log)]


def index_lines(source: "Source", present: "pd.DataFrame") -> list[str]:
    """Say, of an index that is cut, how many of the memories in the table are loaded at most."""
    from memlab.columns import ACTIVE, LOADED_AT_START

    if source.scheme != "claude" or LOADED_AT_START not in present:
        return []
    named = int(present[ACTIVE].sum())
    fits = int((present[ACTIVE] & present[LOADED_AT_START]).sum())
    if fits == named:
        return []
    loads = f"a start loads {fits:,} of the {named:,} files that it names"
    return [f"by the index: {loads}; a cap that leaves more than {fits:,} memories loads no more"]


def command_for(path: Path, advice: "Advice") -> str | None:
    """Return the command that applies the recommended cap; None where it would delete nothing."""
    if advice.keep_recent is None or advice.keep_recent >= advice.prunable:
        return None
    if setting_only(path) is not None:
        return None
    return compact_command(path, advice.keep_recent)


def compact_command(path: Path, cap: int) -> str:
    """Return the command that compacts a store to a cap."""
    return f"memlab compact {shlex.quote(str(path))} --keep-recent {cap} --apply"


def setting_only(path: Path) -> "SettingOnly | None":
    """Return the source of a name if memlab never deletes from it; None for any other."""
    from memlab.sources.abilities import SettingOnly
    from memlab.sources.opening import open_source

    source = open_source(path)
    return source if isinstance(source, SettingOnly) else None


def preview_of(command: str) -> str:
    """Return the same command without what makes it delete."""
    return command.removesuffix(" --apply")


def _reads_of(path: Path) -> Path:
    """Return a name for a log of a store's reads: beside a file, here for a server's."""
    if "://" in str(path):
        return Path("reads.jsonl")
    return (_file_of(path) or path).with_suffix(".reads.jsonl")


def _file_of(path: Path) -> Path | None:
    """Return the file of a store that a name may name with options; None for any other store."""
    source = setting_only(path)
    return None if source is None else source.like


def setting_for(path: Path, advice: "Advice") -> str | None:
    """Return the cap as a setting of a system that evicts by itself; None for one that does not."""
    from memlab.sources.opening import open_source

    source = open_source(path)
    if advice.keep_recent is None or source.scheme == "file":
        return None
    return source.cap_setting(advice.keep_recent)


def setting_lines(path: Path, advice: "Advice") -> list[str]:
    """Say where the cap belongs in that system's settings."""
    source = setting_only(path)
    if source is not None and advice.keep_recent is not None:
        return source.instead(advice.keep_recent)
    setting = setting_for(path, advice)
    by_its_rule = "a cap of that size in its own settings, by its own rule"
    return [] if setting is None else [f"      {setting}    {by_its_rule}"]


def next_lines(path: Path, advice: "Advice", log_file: Path | None = None) -> list[str]:
    """Say what to run next: there is always something."""
    parts = [list(_to_act_on(path, advice))]
    if advice.weight < 0.5:
        parts.append(list(_to_know_more(path, advice, log_file)))
    parts.append(setting_lines(path, advice))
    return "\n\n".join("\n".join(part) for part in parts if part).split("\n")


def _to_act_on(path: Path, advice: "Advice") -> Iterator[str]:
    command, source = command_for(path, advice), setting_only(path)
    if source is not None:
        for end in advice.trade:
            yield f"either {source.instead(end.keep_recent)[-1].strip()}"
    elif command is not None:
        yield f"next: {preview_of(command)}    shows what would go"
        yield f"      {command}    does it"
    elif advice.trade:
        meets, fits = (compact_command(path, end.keep_recent) for end in advice.trade)
        yield f"next: {meets}    for the target"
        yield f"      {fits}    for the budget"
    elif advice.keep_recent is not None:
        dry_run = preview_of(compact_command(path, advice.keep_recent))
        yield f"next: {dry_run}    deletes nothing yet; safe to repeat as the store grows"
    else:
        yield f"next: memlab floor {shlex.quote(str(path))}    what the load-bearing memories cost"


def _to_know_more(path: Path, advice: "Advice", log_file: Path | None) -> Iterator[str]:
    """Say how this store comes to a number of its own."""
    yield (
        f"for a number of its own, this store needs {advice.missing:,} more references or reads "
        "of its memories:"
    )
    log = shlex.quote(str(log_file or _reads_of(path)))
    store, harvested = shlex.quote(str(path)), _file_of(path) or path
    if log_file is None and _is_harvestable(path, harvested):
        harvest = f"memlab harvest {shlex.quote(str(harvested))} -o {log}"
        yield f"  {harvest}    reads in what agents already write"
    yield f"  memlab size {store} --log {log}    with what was read"
    yield "  or let the runtime write it, each time it reads a memory:"
    yield f"    log = memlab.AccessLog({str(log_file or _reads_of(path))!r})"
    yield "    log.add(memory_id)"


def _is_harvestable(path: Path, harvested: str | Path) -> bool:
    """Whether a store, or what is beside it, has reads to harvest; an agent's own file has none."""
    from memlab.sources.opening import open_source

    if open_source(path).scheme == "file":
        return False
    from memlab.evidence.harvest.table import is_harvestable

    return is_harvestable(harvested)


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"
