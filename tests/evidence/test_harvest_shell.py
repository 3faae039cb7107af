"""Files that a shell command reads, writes or searches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.systems.claude_code.shell import file_uses
from tests.support.properties import examples


def uses(command: str, verb: str, cwd: str | None = "/w") -> list[str]:
    return [use.path for use in file_uses(command, cwd) if use.verb == verb]


ABC = ["/w/a.md", "/w/b.md", "/w/c.md"]
SHOWN = [
    ("cat a.md", ["/w/a.md"]),
    ("bash -c 'cd /m && cat a.md'; sh -euo pipefail -c 'cat b.md'", ["/m/a.md", "/w/b.md"]),
    ("timeout -k 3 5s cat a.md; nice -n 5 cat b.md; stdbuf -oL cat c.md", ABC),
    ("sudo -u me cat a.md; env -u X A=1 cat b.md", ["/w/a.md", "/w/b.md"]),
    ("cat a.md | head -5 2>/dev/null", ["/w/a.md"]),
    ("(cd /m && cat a.md); cat b.md", ["/m/a.md", "/w/b.md"]),
    ("if cd /m; then cat a.md; fi; cat b.md", ["/m/a.md", "/m/b.md"]),
    ("cd && cat a.md; cd /m > /dev/null; cat b.md", ["~/a.md", "/m/b.md"]),
    ("cd '/m/x y'; cat \"a b.md\" c\\ d.md", ["/m/x y/a b.md", "/m/x y/c d.md"]),
    ('cat "$HOME/a.md" ${HOME}/b.md ~/c.md', ["~/a.md", "~/b.md", "~/c.md"]),
    ("cat 'it'\"'\"'s.md'", ["/w/it's.md"]),
    ("cat né.md \"北 $HOME 京\".md 'Å'🦀.md", ["/w/né.md", "/w/北 ~ 京.md", "/w/Å🦀.md"]),
    ("head -n 5 a.md; head -5 a.md; head -n5 a.md; head --lines=5 a.md", ["/w/a.md"] * 4),
    ("head --lines 5 a.md; tail -c 10 a.md; tail -f a.md", ["/w/a.md"] * 3),
    ("sed -n '1,5p' a.md; sed -n -e 1p -e 2p a.md; sed --expression=1p a.md", ["/w/a.md"] * 3),
    ("grep -nA 3 foo a.md; grep -e foo a.md; grep -efoo a.md", ["/w/a.md"] * 3),
    ("grep -- -foo a.md; rg -g '*.md' foo a.md; rg -A3 foo a.md", ["/w/a.md"] * 3),
    ("X=1 sudo -E env Y=2 /bin/cat a.md", ["/w/a.md"]),
    ("time cat a.md & ! cat b.md", ["/w/a.md", "/w/b.md"]),
    ("{ cat a.md; } 2>&1", ["/w/a.md"]),
    ("if true; then cat a.md; elif cat b.md; then :; else cat c.md; fi", ABC),
    ("while read x; do cat a.md; done < b.md", ["/w/a.md"]),
    ("case $x in a) cat a.md;; *) cat b.md;; esac", ["/w/a.md", "/w/b.md"]),
    ("cat a.md >&2; cat b.md > /dev/stderr", ["/w/a.md", "/w/b.md"]),
    ("cat < a.md; cat <b.md", ["/w/a.md", "/w/b.md"]),
    ("grep -r foo . ; cat a.md", ["/w", "/w/a.md"]),
    ("less a.md; tac b.md; more c.md", ABC),
    ("cat a.md\ncat b.md # cat c.md", ["/w/a.md", "/w/b.md"]),
    ("cat <<'END'\ncat b.md\nEND\ncat a.md", ["/w/a.md"]),
    ("git commit -m \"$(cat <<'EOF'\ndon't \"x (y\nEOF\n)\" && cat a.md", ["/w/a.md"]),
    ("cat <<-E | sed 's/x/y/'\n\tcat b.md\n\tE\ncat a.md", ["/w/a.md"]),
]
NOT_SHOWN = [
    "bash a.md; bash -c 'cat $1' x a.md; bash -c 'cat a.md' > log; sudo; timeout 5; bash -c",
    "ls a.md; wc -l a.md; stat a.md; python -c 'open(\"a.md\")'",
    "git commit -m 'x; cat a.md' && true",
    "x=$(cat a.md); y=`cat a.md`; diff <(cat a.md) b",
    "cat a.md > /tmp/x; cat a.md >> x; cat a.md &> x; cat a.md | tee x > /dev/null",
    "f() { cat a.md; }",
    'cat *.md; cat [ab].md; cat {a,b}.md; cat $X; cat "$X/a.md"; cat ~other/$X',
    'for f in a.md; do cat "$f"; done',
    "cat <<EOF\ncat a.md\nEOF",
    "ssh host cat a.md; xargs cat < a.md; bash < a.md",
    "grep foo a.md b.md",
    "true || cat a.md",
    "cat 'a.md",
    "",
]
CHANGED = [
    ("sed -i s/a/b/ a.md", ["/w/a.md"]),
    ("sed -i.bak -e s/a/b/ a.md", ["/w/a.md"]),
    ("sed -ni 1p a.md; sed --in-place 1d b.md", ["/w/a.md", "/w/b.md"]),
    ("echo x > a.md; echo x >> b.md; echo x 1> c.md", ABC),
    ("cat > a.md <<'END'\ncat b.md\nEND", ["/w/a.md"]),
    ("mv a.md b.md; rm -f c.md; cp d.md e.md", [f"/w/{name}.md" for name in "abce"]),
    ("echo x | tee -a a.md", ["/w/a.md"]),
    ("sed -n 1p a.md; echo x 2> b.md", []),
    ("echo x > $Y", []),
]


@pytest.mark.parametrize(("command", "files"), SHOWN)
def test_shown_files_are_read(command: str, files: list[str]) -> None:
    assert uses(command, "read") == files


@pytest.mark.parametrize("command", NOT_SHOWN)
def test_files_that_are_not_shown_are_not_read(command: str) -> None:
    assert uses(command, "read") == []


@pytest.mark.parametrize(("command", "files"), CHANGED)
def test_changed_files_are_written(command: str, files: list[str]) -> None:
    assert uses(command, "write") == files


def test_without_working_folder_only_absolute_paths_are_known() -> None:
    assert uses("cat a.md /m/b.md; cd /m; cat c.md", "read", None) == ["/m/b.md", "/m/c.md"]


def test_search_is_reported_with_its_folder() -> None:
    assert uses("cat /m/*.md; grep x /m/a.md /m/b.md", "search") == ["/m", "/m/a.md", "/m/b.md"]


@given(st.text(max_size=200), st.sampled_from(["cat a.md", "sed -i x a.md", "cd /m", ""]))
@settings(max_examples=examples(300))
def test_arbitrary_text_is_parsed_without_error(text: str, command: str) -> None:
    list(file_uses(text, "/w"))
    list(file_uses(f"{text}\n{command}", "/w"))
    list(file_uses(f"{command} {text}", None))


@pytest.mark.parametrize(
    "text",
    [
        "bash -c '" * 999,
        "(" * 5000,
        "$(" * 5000,
        "'" * 9999,
        "a;" * 9999,
        "<<E " * 999,
        "a && " * 9999,
        "a=(" * 999,
        "\x13RO{\U000def9f",  # inputs on which the grammar itself crashes
    ],
)
def test_deeply_nested_script_is_parsed_without_error(text: str) -> None:
    assert uses(f"{text}\ncat a.md", "read") in ([], ["/w/a.md"])
