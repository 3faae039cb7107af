"""An index that is itself the memory: shown by section with tokens and cut."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.systems.claude_code.index import (
    LoadRule,
    MemoryIndex,
    State,
    sections_of,
)
from tests.support.claude_store import (
    at,
    memory,
    project_folder,
    realistic_folder,
    write_index,
    write_memory,
)
from tests.support.shell import output_of

STEPS = [f"Step {number}." for number in range(300)]
PROSE = ["# Build", "Use make.", "", "## Deploy", *STEPS, "# Style #"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = project_folder(tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_show_lists_sections_and_their_cut(folder: Path) -> None:
    write_index(folder, [*PROSE, "Short."])
    before = (folder / "MEMORY.md").read_bytes()
    output = output_of("show", folder)
    assert "3 sections of MEMORY.md, which is itself the memory" in output
    about = json.loads(output_of("show", "--json", folder))["about"]
    sections = [(section["line"], section["title"]) for section in about["sections"]]
    assert sections == [(1, "Build"), (4, "Deploy"), (305, "Style")]
    build, _, style = about["sections"]
    assert build["cut_tokens"] == 0
    assert style["cut_tokens"] > 0
    assert style["cut_tokens"] == style["tokens"]
    assert (folder / "MEMORY.md").read_bytes() == before


def test_index_of_files_has_no_sections(folder: Path) -> None:
    for number in range(3):
        write_memory(folder, f"f{number}.md", memory(f"m{number}"), at(number))
    entries = [f"- [T](f{number}.md) hook" for number in range(3)]
    write_index(folder, ["# Memory", *entries])
    assert "sections of MEMORY.md" not in output_of("show", folder)


def test_real_index_has_no_sections(tmp_path: Path) -> None:
    assert "sections of MEMORY.md" not in output_of(
        "show", realistic_folder(project_folder(tmp_path), files=12)
    )


def test_heading_in_a_code_block_starts_no_section() -> None:
    index = MemoryIndex(b"# One\n```\n# no heading\n```\n#tag\n# Two\n")
    assert [section.title for section in sections_of(index)] == ["One", "Two"]


LINES = st.sampled_from(
    [
        "# A",
        "## B ##",
        "#",
        "text",
        "",
        "- item",
        "  more",
        "```",
        "<!-- a -->",
        "- [F](f.md)",
        "---",
    ]
)


@given(st.lists(LINES, max_size=20), st.integers(1, 9))
def test_sections_cover_the_visible_and_loaded_text(lines: list[str], limit: int) -> None:
    index = MemoryIndex("\n".join(lines).encode(), LoadRule(lines=limit))
    visible = [block for block in index.blocks if block.state is not State.UNSEEN]
    loaded = [block for block in visible if block.state is State.LOADED]
    sections = sections_of(index)
    text_of_sections = "".join(section.text for section in sections)
    loaded_text_of_sections = "".join(section.loaded for section in sections)
    visible_text = "".join(block.text for block in visible)
    loaded_text = "".join(block.text for block in loaded)
    assert text_of_sections.split() == visible_text.split()
    assert loaded_text_of_sections.split() == loaded_text.split()


def test_compact_explains_that_prose_is_not_shortened(folder: Path) -> None:
    write_index(folder, PROSE)
    output = output_of("compact", folder, "--keep-recent", "3")
    assert "a start loads the text of the index itself" in output
    assert "no memory is loaded, so no cap can delete anything" in output_of("show", folder)
