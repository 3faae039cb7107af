"""Names and dtypes of the columns of frames, and keys of their ``attrs``.

A frame of memories has one row for each memory, in order of insertion.
"""

from typing import Final

POSITION: Final = "position"
"""Rowid in SQLite, int64: the order in which memories were first written."""
KEY: Final = "key"
"""Primary key in the source. For ``memory_items`` it equals the position; gaps are deletions."""
MEMORY_ID: Final = "memory_id"
KIND: Final = "kind"
TITLE: Final = "title"
BODY: Final = "body"
"""Text of the memory; only in frames that were loaded with it."""
CHARS: Final = "chars"
"""Number of characters in title and body, int64."""
TOKENS: Final = "tokens"
"""Number of tokens in title and body, int64; ``frame.attrs[TOKEN_RULE]`` describes the rule."""
TAGS: Final = "tags"
SOURCE_TASK_REF: Final = "source_task_ref"
AUTHORED_BY: Final = "authored_by"
CONFIDENCE: Final = "confidence"
CREATED_AT: Final = "created_at"
SUPERSEDES: Final = "supersedes"
EVIDENCE_REFS: Final = "evidence_refs"
SUPERSEDED_BY: Final = "superseded_by"

ACTIVE: Final = "active"
"""Whether the memory is not superseded; an agent loads active memories at start."""
LOAD_BEARING: Final = "load_bearing"
"""Whether the memory is never pruned, by :func:`memlab.items.is_load_bearing_memory`."""
PRUNABLE: Final = "prunable"
"""Whether the memory is active and not load-bearing; compaction selects among these."""
DELETED_AT: Final = "deleted_at"
"""Time of deletion; missing for a memory that is in the store.

Only in frames of the whole history, whose deleted rows come from an archive or from git."""
WRITTEN_AT: Final = "written_at"
"""For a memory in git that somebody else deleted: the time of its last change."""
COMMIT: Final = "commit"
"""Git commit of the deletion; empty if it is not committed yet."""
RETIRED_AT: Final = "retired_at"
"""Time of retirement by a plan; missing for a memory that is not retired.

Only in frames of stores that can retire memories. A retired memory is not ``active``, and no other
memory supersedes it."""
PROBLEM: Final = "problem"
"""Why a row cannot be interpreted; only in frames loaded with ``on_bad_row="keep"``."""

IMPORTANCE: Final = "importance"
LAST_ACCESSED_AT: Final = "last_accessed_at"
ACCESS_COUNT: Final = "access_count"
EXPIRES_AT: Final = "expires_at"
AGENT_ID: Final = "agent_id"
NAMESPACE: Final = "namespace"
THREAD_ID: Final = "thread_id"
GRADUATED: Final = "graduated"
TRUSTED: Final = "trusted"
LOADED_AT_START: Final = "loaded_at_start"
"""Whether the agent loads the memory at start; in frames of sources in which not every active
memory is loaded."""

INDEX_STATE: Final = "index_state"
"""Whether a start finds a memory of a folder with an index: one of :data:`INDEX_STATES`.

Only in frames of such stores. A missing state is unknown; the memory counts as listed."""
LISTED: Final = "listed"
"""The index that a start reads names the memory."""
REACHED: Final = "reached"
"""The index does not name the memory, but names a hub: a file of links with this one."""
UNLISTED: Final = "unlisted"
"""Neither the index nor a hub names the memory.

A start does not find it, so no cap removes it and the estimated law of references does not count
it."""
INDEX_STATES: Final = (LISTED, REACHED, UNLISTED)
"""The states of memories in a folder with an index."""
DOUBT: Final = "doubt"
"""Why a memory counts as load-bearing until a person decides; missing if there is no doubt.

Only in frames of stores in which there can be a doubt."""

AGENT_SCOPE: Final = (AGENT_ID, THREAD_ID, NAMESPACE)
"""Columns that name the agent, the thread and the namespace to which a memory belongs."""

TOKEN_RULE: Final = "token_rule"  # noqa: S105 - tokens of text, not a credential
"""Key of ``frame.attrs``: the rule by which tokens are counted, in words."""

WITHOUT_ZONE: Final = "without_zone"
"""Key of the ``attrs`` of a frame or a log: number of times without a time zone, read as UTC."""
SOURCE: Final = "source"
"""Key of ``attrs``: name of the source of a frame, and of results computed from it."""
RECALLED: Final = "recalled"
"""Key of ``attrs``: whether the agent recalls prunable memories on demand and loads none at start.

In a store without prunable memories: whether the agent loads no memory at start."""
INDEX_TOKENS: Final = "index_tokens"
"""Key of ``frame.attrs``: tokens of the loaded index that belong to no memory, such as headings.

Only in frames of stores with an index. Where such an index is cut, an entry below the cut moves up
when one above it is removed."""
REVISED: Final = "revised"
"""Key of ``attrs``: signals that the system changes after a memory is written.

Only their current values are known."""
HAS_PAST: Final = "has_past"
"""Key of ``frame.attrs``: whether an archive or git has deleted memories that the frame lacks."""
RANKS_BY: Final = "ranks_by"
"""Key of ``attrs`` of a comparison: whether each policy orders by age, by use or by neither."""
REFERENCES: Final = "references"
"""Key of ``attrs``: number of references from which a result is computed."""

TIME: Final = "datetime64[us, UTC]"

DTYPES: Final[dict[str, str]] = {
    POSITION: "int64",
    MEMORY_ID: "str",
    KIND: "category",
    TITLE: "str",
    CHARS: "int64",
    TOKENS: "int64",
    TAGS: "object",
    SOURCE_TASK_REF: "str",
    AUTHORED_BY: "str",
    CONFIDENCE: "float64",
    CREATED_AT: TIME,
    SUPERSEDES: "object",
    EVIDENCE_REFS: "object",
    SUPERSEDED_BY: "str",
    ACTIVE: "bool",
    LOAD_BEARING: "bool",
    PRUNABLE: "bool",
}
"""Columns of every frame, in order. ``object`` columns hold tuples of strings.

:func:`memlab.frame.loading.frame_from` fills them for the memories of a store, and
:func:`memlab.evidence.past.frame_of_facts` for memories without texts.
"""

SIGNAL_DTYPES: Final[dict[str, str]] = {
    IMPORTANCE: "float64",
    LAST_ACCESSED_AT: TIME,
    ACCESS_COUNT: "Int64",
    EXPIRES_AT: TIME,
    AGENT_ID: "str",
    NAMESPACE: "str",
    THREAD_ID: "str",
    GRADUATED: "bool",
    TRUSTED: "bool",
}
"""Further columns of the frame of a store that keeps signals, in order."""

LABEL: Final = "label"
"""Column of a loaded frame: one of :data:`LABELS` for each memory."""
LABELS: Final = (
    "load-bearing",
    "prunable",
    "superseded",
    "retired",
    "reached",
    "unlisted",
    "deleted",
)
"""The labels of memories."""

TARGET_ID: Final = "target_id"
TARGET_POSITION: Final = "target_position"
AT_POSITION: Final = "at_position"
AT: Final = "at"
SESSION: Final = "session"
"""Session of a read in an access log; missing if it is not known."""

REFERENCE_DTYPES: Final[dict[str, str]] = {
    TARGET_ID: "str",
    TARGET_POSITION: "int64",
    AT_POSITION: "int64",
    AT: TIME,
    KIND: "category",
}
"""Columns of a frame of references: the target was needed at ``at_position`` and ``at``."""

SUPERSEDED: Final = "superseded"
LOAD_BEARING_TOKENS: Final = "load_bearing_tokens"
PRUNABLE_TOKENS: Final = "prunable_tokens"
SUPERSEDED_TOKENS: Final = "superseded_tokens"
RETIRED: Final = "retired"
RETIRED_TOKENS: Final = "retired_tokens"
PRUNABLE_SHARE: Final = "prunable_share"
"""Number of prunable memories divided by the number of active ones."""
PRUNABLE_SHARE_TOKENS: Final = "prunable_share_tokens"
"""Number of prunable tokens divided by the number of active tokens."""

GROWTH_DTYPES: Final = {
    LOAD_BEARING: "int64",
    PRUNABLE: "int64",
    SUPERSEDED: "int64",
    RETIRED: "int64",
    LOAD_BEARING_TOKENS: "int64",
    PRUNABLE_TOKENS: "int64",
    SUPERSEDED_TOKENS: "int64",
    RETIRED_TOKENS: "int64",
    PRUNABLE_SHARE: "float64",
    PRUNABLE_SHARE_TOKENS: "float64",
}
"""Columns of a growth curve, whose index is time: the numbers at each moment."""

CAVEAT: Final = "caveat"
"""Key of the ``attrs`` of a time series: what it cannot show; empty if there is no limit."""
UNDATED: Final = "undated"
"""Key of the ``attrs`` of a growth curve: number of rows without a usable creation time."""
BELOW_CUT: Final = "below_cut"
"""Key of the ``attrs`` of a growth curve: number of present memories that no start loads.

In a store with an index, the index names them below its cut.
"""

PART: Final = "part"
"""Name of the index of the composition of a start.

Its values are decisions, skills, rejected paths and episodes."""
MEMORIES: Final = "memories"

KEEP: Final = "keep"
REASON: Final = "reason"
