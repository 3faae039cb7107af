"""The column names and dtypes of a frame, one row per memory in order of insertion, said once."""

from typing import Final

POSITION: Final = "position"
"""SQLite's rowid, int64: the order in which memories were first written."""
KEY: Final = "key"
"""The source's own address, in all but ``memory_items``: there it is the position, and a number
that nobody has was a memory's."""
MEMORY_ID: Final = "memory_id"
KIND: Final = "kind"
TITLE: Final = "title"
BODY: Final = "body"
"""The text itself, only where it was asked for."""
CHARS: Final = "chars"
"""Characters of title and body together, int64."""
TOKENS: Final = "tokens"
"""Tokens of title and body together, int64; ``frame.attrs[TOKEN_RULE]`` says how counted."""
TAGS: Final = "tags"
SOURCE_TASK_REF: Final = "source_task_ref"
AUTHORED_BY: Final = "authored_by"
CONFIDENCE: Final = "confidence"
CREATED_AT: Final = "created_at"
SUPERSEDES: Final = "supersedes"
EVIDENCE_REFS: Final = "evidence_refs"
SUPERSEDED_BY: Final = "superseded_by"

ACTIVE: Final = "active"
"""Not superseded: an agent loads it at start."""
LOAD_BEARING: Final = "load_bearing"
"""May never be pruned: the verdict of :func:`memlab.items.is_load_bearing_memory`."""
PRUNABLE: Final = "prunable"
"""Active and not load-bearing: what compaction chooses among."""
DELETED_AT: Final = "deleted_at"
"""When a memory was deleted from the store; missing for one that is there. Only in frames of the
whole past, whose other rows come from an archive, or from git."""
WRITTEN_AT: Final = "written_at"
"""When what somebody else deleted was last written, of git."""
COMMIT: Final = "commit"
"""Git's name of the commit in which that was deleted; empty where none has it yet."""
RETIRED_AT: Final = "retired_at"
"""When a plan took a memory out of what is loaded; missing for one that is not retired. Only in
frames of stores that can have some: these are not ``active``, and no other stands for them."""
PROBLEM: Final = "problem"
"""Why a row could not be interpreted; only in frames loaded with ``on_bad_row="keep"``."""

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
"""Whether the agent loads it at start, where a source knows better than ``active``."""

INDEX_STATE: Final = "index_state"
"""How a start leads to a memory of a folder that has an index: one of :data:`INDEX_STATES`. Only in
frames of such stores; missing where it is not known, and such a memory counts as listed."""
LISTED: Final = "listed"
"""The index that a start reads names the memory."""
REACHED: Final = "reached"
"""The index does not name it, and a hub does: a file of links that the index names."""
UNLISTED: Final = "unlisted"
"""Neither does. No start leads to it, so no cap can take it and no law counts it."""
INDEX_STATES: Final = (LISTED, REACHED, UNLISTED)
DOUBT: Final = "doubt"
"""Why a memory counts as load-bearing until a person says otherwise; missing where nothing is in
doubt. Only in frames of stores in which that can be."""

AGENT_SCOPE: Final = (AGENT_ID, THREAD_ID, NAMESPACE)
"""What a memory belongs to."""

TOKEN_RULE: Final = "token_rule"  # noqa: S105 - tokens of text, not a credential
"""Key of ``frame.attrs``: how tokens were counted, in words."""

WITHOUT_ZONE: Final = "without_zone"
"""Key of the ``attrs`` of a frame and of a log: how many of its times have no time zone and were
taken as UTC."""
SOURCE: Final = "source"
"""Key of ``attrs``, of a frame and of what is computed from one: what the source is called."""
RECALLED: Final = "recalled"
"""Key of ``attrs``, of a frame and of what is computed from one: whether its store's memories are
looked up, and none is loaded at start."""
REVISED: Final = "revised"
"""Key of ``attrs``: signals of a frame that its system changes after a memory is written, of which
only the present value is known."""
HAS_PAST: Final = "has_past"
"""Key of ``frame.attrs``: whether deleted memories are known that it lacks, of its store's archive
or of git."""
GOES_BY: Final = "goes_by"
REFERENCES: Final = "references"
"""Key of ``attrs`` of what is computed from references: how many they are."""

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
"""Columns every frame has, in order. ``object`` columns hold tuples of strings."""

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
"""Columns a frame has when its store keeps signals, in order."""

TARGET_ID: Final = "target_id"
TARGET_POSITION: Final = "target_position"
AT_POSITION: Final = "at_position"
AT: Final = "at"
SESSION: Final = "session"
"""Of a read in an access log: the session it was made in, missing where nobody said."""

REFERENCE_DTYPES: Final[dict[str, str]] = {
    TARGET_ID: "str",
    TARGET_POSITION: "int64",
    AT_POSITION: "int64",
    AT: TIME,
    KIND: "category",
}
"""Columns of a frame of references: at ``at_position`` and ``at`` somebody needed ``target``."""

SUPERSEDED: Final = "superseded"
LOAD_BEARING_TOKENS: Final = "load_bearing_tokens"
PRUNABLE_TOKENS: Final = "prunable_tokens"
SUPERSEDED_TOKENS: Final = "superseded_tokens"
RETIRED: Final = "retired"
RETIRED_TOKENS: Final = "retired_tokens"
PRUNABLE_SHARE: Final = "prunable_share"
"""Prunable memories over active ones."""
PRUNABLE_SHARE_TOKENS: Final = "prunable_share_tokens"
"""Prunable tokens over active tokens."""

GROWTH_DTYPES: Final = {
    **dict.fromkeys((LOAD_BEARING, PRUNABLE, SUPERSEDED, RETIRED), "int64"),
    **dict.fromkeys((LOAD_BEARING_TOKENS, PRUNABLE_TOKENS), "int64"),
    **dict.fromkeys((SUPERSEDED_TOKENS, RETIRED_TOKENS), "int64"),
    **dict.fromkeys((PRUNABLE_SHARE, PRUNABLE_SHARE_TOKENS), "float64"),
}
"""Columns of a growth curve, whose index is time: what is there at each instant."""

CAVEAT: Final = "caveat"
"""Key of the ``attrs`` of what is charted over time: what it cannot show; empty for nothing."""
UNDATED: Final = "undated"
"""Key of a growth curve's ``attrs``: how many rows had no usable creation time."""

PART: Final = "part"
"""Index of a boot context's composition: decisions, skills, rejected paths, episodes."""
MEMORIES: Final = "memories"

KEEP: Final = "keep"
REASON: Final = "reason"
