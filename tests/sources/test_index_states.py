"""Index states of Claude Code memories: listed, reached by a hub, unlisted, doubtful."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab.compaction.plan_cost import cost_of
from memlab.errors import CompactionError
from memlab.evidence.past import in_reach
from memlab.policies import PurgeSuperseded
from memlab.systems.claude_code.hubs import list_of_links
from memlab.systems.claude_code.markdown import read_front_matter
from memlab.systems.claude_code.types import type_of
from tests.support.claude_store import (
    at,
    index_lines,
    memory,
    project_folder,
    write_index,
    write_memory,
)
from tests.support.properties import examples

KINDS = {"user": "semantic", "feedback": "semantic"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project_folder(tmp_path)


def write_listed(folder: Path, count: int) -> None:
    """Write memories and their index lines."""
    for number in range(count):
        write_memory(folder, f"in_{number}.md", memory(f"in {number}"), at(10 * number))
    write_index(folder, [f"- [In {number}](in_{number}.md) — a hook" for number in range(count)])


def write_hub(folder: Path, hub: str, names: Iterable[str], *, style: str = "- [{0}]({0})") -> None:
    """Write a hub that the index names, and the files that it names."""
    names = list(names)
    for number, name in enumerate(names):
        if not (folder / name).exists():
            write_memory(folder, name, memory(name), at(number + 0.5))
    body = "# Deploys\n\n" + "\n".join(style.format(name) for name in names)
    write_memory(folder, hub, memory("hub", "reference", body=body), at(500))
    write_index(folder, [*index_lines(folder), f"- [A hub]({hub})"])


# Unlisted


@pytest.mark.parametrize("unlisted", [5, 10, 100, 400])
def test_unlisted_files_do_not_affect_cost_or_size(folder: Path, unlisted: int) -> None:
    write_listed(folder, 10)
    plan = memlab.plan(folder, memlab.KeepRecent(9))
    alone = cost_of(plan)
    size = memlab.size(folder).advice
    for number in range(unlisted):
        moment = at(100 * number / unlisted)
        write_memory(folder, f"un_{number:03}.md", memory(f"un {number}"), moment)
    beside = memlab.plan(folder, memlab.KeepRecent(9))
    assert cost_of(beside) == alone
    assert memlab.size(folder).advice.keep_recent == size.keep_recent
    assert memlab.size(folder).advice.likely == size.likely
    assert beside.memories == plan.memories
    assert beside.total_without_unlisted.memories == 10
    assert beside.labelled("unlisted").memories == unlisted
    assert re.search(rf"unlisted +{unlisted} memories that no index names", str(beside))


@pytest.mark.parametrize(("unlisted", "phrase"), [(1, "1 file that"), (2, "2 files that")])
def test_show_counts_unlisted_files_in_words(folder: Path, unlisted: int, phrase: str) -> None:
    for number in range(unlisted):
        write_memory(folder, f"un_{number}.md", memory(f"un_{number}"))
    assert f"{phrase} nothing names" in str(memlab.show(folder))


@given(st.lists(st.sampled_from(["listed", "unlisted"]), min_size=1, max_size=30))
@settings(max_examples=examples(25), deadline=None)
def test_only_listed_memories_count_in_sizing(
    tmp_path_factory: pytest.TempPathFactory, states: list[str]
) -> None:
    folder = project_folder(tmp_path_factory.mktemp("law"))
    listed = [f"m_{number}.md" for number, state in enumerate(states) if state == "listed"]
    for number in range(len(states)):
        write_memory(folder, f"m_{number}.md", memory(f"m {number}"), at(number))
    write_index(folder, [f"- [M]({name})" for name in listed])
    past = memlab.load_past(folder)
    assert past["index_state"].tolist() == states
    counted, _ = in_reach(past, memlab.find_references(past))
    assert counted["memory_id"].tolist() == listed


def test_read_of_an_unlisted_file_is_shown_but_not_counted(folder: Path) -> None:
    write_listed(folder, 10)
    write_memory(folder, "un.md", memory("un"), at(20))
    log = folder.parent / "reads.jsonl"
    reads = [{"memory_id": "un.md", "at": at(200 + number).isoformat()} for number in range(5)]
    log.write_text("".join(f"{json.dumps(read)}\n" for read in reads))
    listed = memlab.rows(folder, log=log).set_index("memory_id")
    assert listed.loc["un.md", "reads"] == 5
    assert listed.loc["un.md", "label"] == "unlisted"
    assert memlab.size(folder, log=log).advice.references == 0


def test_every_command_counts_the_same_later_needs(folder: Path) -> None:
    write_listed(folder, 10)
    write_memory(folder, "un.md", memory("un"), at(20))
    log = folder.parent / "reads.jsonl"
    names = ["un.md"] * 5 + ["in_0.md"] * 7
    reads = [
        {"memory_id": name, "at": at(200 + number).isoformat()} for number, name in enumerate(names)
    ]
    log.write_text("".join(f"{json.dumps(read)}\n" for read in reads))
    size = memlab.size(folder, log=log, explain=True)
    facts = dict(size.sheet().facts)
    assert size.advice.references == 7
    assert facts["later needs"] == "7 read; not counted: 5 of a memory that no index names"
    assert facts["reads"].startswith("12 lines in the log, 7 of them later needs")
    cost = cost_of(memlab.plan(folder, memlab.KeepRecent(3)), log=log)
    assert cost.references == 7
    assert "of 7 later needs" in str(cost)
    comparison = memlab.compare(folder, policies=[memlab.KeepRecent(3)], log=log)
    assert comparison.references == 7
    assert dict(comparison.sheet().facts)["references"].startswith("7 later needs")


def test_no_policy_deletes_an_unlisted_file(folder: Path) -> None:
    write_listed(folder, 2)
    write_memory(folder, "un.md", memory("un"), at(1))
    for policy in (memlab.KeepRecent(0), PurgeSuperseded("0d"), memlab.TimeToLive("1d")):
        plan = memlab.plan(folder, policy)
        assert "un.md" not in {memory.memory_id for memory in plan.memories}
    memlab.apply(memlab.plan(folder, memlab.KeepRecent(0)), all_prunable=True)
    assert (folder / "un.md").exists()


def test_show_rows_and_doctor_count_the_states(folder: Path) -> None:
    write_listed(folder, 3)
    write_hub(folder, "hub.md", ["r_0.md", "r_1.md"])
    write_memory(folder, "un.md", memory("un"), at(9))
    write_memory(folder, "feedback_tone.md", "Be brief.\n", at(10))
    write_index(folder, [*index_lines(folder), "- [Tone](feedback_tone.md)"])
    summary = memlab.show(folder).summary
    assert summary.reached.memories == 2
    assert summary.unlisted.memories == 1
    assert summary.doubtful.memories == 1
    labels = memlab.rows(folder).groupby("label", observed=True).size().to_dict()
    assert labels == {"load-bearing": 1, "prunable": 3, "reached": 2, "unlisted": 1}
    assert memlab.rows(folder, where="doubtful")["memory_id"].tolist() == ["feedback_tone.md"]
    counts = memlab.doctor(folder).checks[0].counts
    assert counts["superseded"] == 0
    assert counts["reached"] == 2
    assert counts["unlisted"] == 1
    assert counts["doubtful"] == 1
    curve = memlab.growth_curve(folder)
    assert curve["superseded"].tolist()[-1] == 0


# Hubs


@pytest.mark.parametrize(
    "style", ["- [{0}]({0})", "* **[{0}](./{0})** - about", "- [[{0}]]", "| [{0}]({0}) | about |"]
)
def test_hub_is_not_a_memory_and_its_files_are_reached(folder: Path, style: str) -> None:
    write_listed(folder, 2)
    write_hub(folder, "hub.md", ["r_0.md", "r_1.md", "r_2.md"], style=style)
    states = memlab.load(folder).set_index("memory_id")["index_state"].to_dict()
    assert "hub.md" not in states
    for name in ("r_0.md", "r_1.md", "r_2.md"):
        assert states[name] == "reached"
    assert memlab.show(folder).more["about"].to_dict()["hubs"] == ["hub.md"]


def test_nested_hubs_reach_their_files(folder: Path) -> None:
    write_listed(folder, 1)
    write_hub(folder, "low.md", ["r_0.md", "r_1.md"])
    write_hub(folder, "high.md", ["low.md", "r_2.md"])
    write_index(folder, ["- [In 0](in_0.md)", "- [All](high.md)"])
    states = memlab.load(folder).set_index("memory_id")["index_state"].to_dict()
    assert states == {
        "in_0.md": "listed",
        "r_0.md": "reached",
        "r_1.md": "reached",
        "r_2.md": "reached",
    }


@pytest.mark.parametrize(
    "text",
    [
        "The deploy takes an hour. See [a](a.md), [b](b.md) and [c](c.md).\n",
        "Always roll back first, then look at the logs of the last hour.\n\n- [[a]]\n- [[b]]\n",
        "- [one](a.md)\n",
        "- [docs](https://example.org/a)\n- [more](https://example.org/b)\n",
        "- a plain list\n- of two facts\n",
        "",
    ],
)
def test_prose_with_links_is_not_a_hub(text: str) -> None:
    assert list_of_links(text) is None


def test_unlisted_list_of_links_is_not_a_hub(folder: Path) -> None:
    write_listed(folder, 1)
    write_hub(folder, "hub.md", ["r_0.md", "r_1.md"])
    write_index(folder, ["- [In 0](in_0.md)"])
    states = memlab.load(folder).set_index("memory_id")["index_state"].to_dict()
    assert states == {
        "in_0.md": "listed",
        "hub.md": "unlisted",
        "r_0.md": "unlisted",
        "r_1.md": "unlisted",
    }


def test_no_plan_deletes_files_of_a_hub(folder: Path) -> None:
    write_listed(folder, 4)
    write_hub(folder, "hub.md", ["in_0.md", "in_1.md", "r_0.md"])
    before = (folder / "hub.md").read_bytes()
    plan = memlab.plan(folder, memlab.KeepRecent(0))
    assert [memory.memory_id for memory in plan.memories] == ["in_2.md", "in_3.md"]
    assert re.search("reached +1 memory named by a hub alone", str(plan))
    held = memlab.rows(folder, where="doubtful")
    assert held["memory_id"].tolist() == ["in_0.md", "in_1.md"]
    assert "hub.md names it too" in held["doubt"].iloc[0]
    receipt = memlab.apply(plan, all_prunable=True)
    memlab.restore(receipt)
    assert (folder / "hub.md").read_bytes() == before


def test_plan_is_stale_once_a_hub_names_its_memories(folder: Path) -> None:
    write_listed(folder, 4)
    plan = memlab.plan(folder, memlab.KeepRecent(2))
    write_hub(folder, "hub.md", ["in_0.md", "in_3.md"])
    with pytest.raises(CompactionError, match=r"in_0\.md"):
        memlab.apply(plan)
    assert (folder / "in_0.md").exists()


# Doubt

HEADLESS = "Body.\n"
DOUBTFUL = {
    "a list": "---\nname: x\ntype: [feedback, user]\n---\n",
    "a list below": "---\nname: x\ntype:\n  - feedback\n---\n",
    "another case": "---\nName: x\nType: feedback\n---\n",
    "two different types": "---\nname: x\ntype: project\nmetadata:\n  type: feedback\n---\n",
    "two different types, reversed": "---\ntype: reference\nmetadata: {type: user}\n---\n",
    "a key twice": "---\ntype: feedback\ntype: project\n---\n",
    "a blank line first": "\n---\nname: x\ntype: feedback\n---\n",
    "a comment first": "<!-- v1 -->\n---\nname: x\ntype: feedback\n---\n",
    "a comment of several lines first": "<!-- v1\nby hand -->\n\n---\ntype: user\n---\n",
    "no YAML, in braces": "---\ndescription: `code` rule\nmetadata: {type: feedback}\n---\n",
    "invalid YAML without a type": "---\ndescription: never: do: this\n---\n",
    "a non-breaking space": "---\nname: x\ntype:\u00a0feedback\n---\n",
    "a colon of full width": "---\nname: x\ntype： feedback\n---\n",
    "four dashes": "----\nname: x\ntype: feedback\n----\n",
    "TOML": '+++\nname = "x"\ntype = "feedback"\n+++\n',
    "nested deeper": "---\nname: x\nmetadata:\n  claude:\n    type: feedback\n---\n",
    "another key": "---\nname: x\ncategory: feedback\n---\n",
    "a custom key": "---\nname: x\nkind: user\n---\n",
    "a path": "---\nname: x\ntype: feedback/workflow\n---\n",
    "a custom type": "---\nname: x\ntype: preference\n---\n",
    "an empty type": "---\nname: x\ntype:\n---\n",
}
PLAIN = {
    "project": "---\nname: x\ntype: project\n---\n",
    "reference": "---\nmetadata:\n  type: reference\n---\n",
    "two equal types": "---\ntype: project\nmetadata: {type: project}\n---\n",
    "no type": "---\nname: x\n---\n",
    "no front matter": HEADLESS,
    "invalid YAML with a type": "---\nname: a: b\ntype: project\n---\n",
    "an unrelated key": "---\nkind: note\ncategory: infra\n---\n",
    "words in the body": "---\ntype: project\n---\ntype: feedback\n",
}


def doubt_about(text: str, stem: str = "x") -> str:
    """Return the reason to doubt the type of a file; it is empty if there is none."""
    _, doubt = type_of(stem, text, read_front_matter(text), KINDS)
    return doubt


@pytest.mark.parametrize("text", DOUBTFUL.values(), ids=DOUBTFUL)
def test_possible_instruction_is_doubtful(text: str) -> None:
    assert doubt_about(text)


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_explicitly_typed_text_is_not_doubtful(text: str) -> None:
    assert not doubt_about(text)


@pytest.mark.parametrize("stem", ["feedback_tone", "feedback-tone", "user_name", "User"])
def test_untyped_file_with_telling_name_is_doubtful(stem: str) -> None:
    assert doubt_about(HEADLESS, stem)
    assert not doubt_about(PLAIN["project"], stem)


@pytest.mark.parametrize("text", DOUBTFUL.values(), ids=DOUBTFUL)
def test_doubtful_file_is_load_bearing_and_reported(folder: Path, text: str) -> None:
    write_listed(folder, 1)
    write_memory(folder, "odd.md", f"{text}Body.\n", at(9))
    write_index(folder, [*index_lines(folder), "- [Odd](odd.md)"])
    row = memlab.load(folder).set_index("memory_id").loc["odd.md"]
    assert row["load_bearing"]
    assert row["doubt"]
    plan = memlab.plan(folder, memlab.KeepRecent(0))
    assert [memory.memory_id for memory in plan.memories] == ["in_0.md"]
    (check,) = [check for check in memlab.doctor(folder).checks if check.name == "types"]
    assert check.status == "WARN"
    assert check.counts["found"] == 1
    assert "type: project" in check.advice


def test_settings_can_declare_custom_types(folder: Path) -> None:
    write_listed(folder, 1)
    for number, kind in enumerate(("preference", "howto")):
        write_memory(folder, f"{kind}.md", memory(kind, kind), at(number))
    settings_file = folder.parent / "memlab.toml"
    kinds = 'kinds = { preference = "semantic", howto = "episodic" }'
    settings_file.write_text(f"[store.memory.claude]\n{kinds}\n")
    frame = memlab.load(folder).set_index("memory_id")
    assert frame["doubt"].isna().all()
    assert frame["load_bearing"].to_dict() == {
        "in_0.md": False, "preference.md": True, "howto.md": False,
    }  # fmt: skip


def test_front_matter_type_resolves_the_doubt(folder: Path) -> None:
    write_listed(folder, 1)
    write_memory(folder, "in_0.md", DOUBTFUL["a list"])
    assert memlab.load(folder)["load_bearing"].tolist() == [True]
    write_memory(folder, "in_0.md", PLAIN["project"])
    frame = memlab.load(folder)
    assert frame["load_bearing"].tolist() == [False]
    assert frame["doubt"].isna().all()
