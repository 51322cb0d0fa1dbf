from __future__ import annotations

import html.parser
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import OutputError
from conccl.report.blocks import Note, Notes, Section
from conccl.report.html import page_of, write_html
from conccl.report.page import Page, data_island, render_page
from example_analysis import HOSTILE, analysis, hostile_analysis

any_text = st.text(st.characters(exclude_categories=[]), max_size=60)


class Reader(html.parser.HTMLParser):
    """Collects tags with their attributes, and the texts between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts.setdefault(self.tags[-1][0], []).append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def page(*notes: str) -> Page:
    section = Section(
        id="notes",
        title="Notes",
        lead="",
        blocks=(Notes(notes=tuple(Note(level="info", title=note) for note in notes)),),
    )
    return Page(title="A page", subtitle="", sections=(section,))


@given(st.dictionaries(any_text, st.lists(any_text, max_size=3), max_size=3))
def test_data_in_the_page_says_the_same_and_cannot_end_its_island(document: dict[str, list[str]]):
    island = data_island(document)
    assert json.loads(island) == document
    assert not set(island) & set("<>&\u2028\u2029")


@given(any_text)
def test_no_text_becomes_markup(text: str):
    plain = [tag for tag, _ in read(render_page(page("a"))).tags]
    assert [tag for tag, _ in read(render_page(page(text))).tags] == plain


def test_a_page_of_hostile_names_has_only_our_scripts_and_handlers():
    reader = read(render_page(page_of(hostile_analysis(), title=HOSTILE[0])))
    scripts = [attributes for tag, attributes in reader.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not any(tag == "img" for tag, _ in reader.tags)
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)


def test_nothing_is_loaded_from_anywhere():
    reader = read(render_page(page_of(analysis(), title="t")))
    for tag, attributes in reader.tags:
        assert tag not in {"link", "iframe", "object", "embed"}
        assert not set(attributes) & {"src", "srcset", "action", "data"}
        assert not (attributes.get("href") or "#").lower().startswith(("http", "//", "javascript"))
    assert "url(" not in "".join(reader.texts["style"])
    assert "@import" not in "".join(reader.texts["style"])


def test_policy_allows_the_pages_own_script_and_nothing_else():
    text = render_page(page_of(analysis(), title="t"))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in read(text).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src-attr")[0]


def test_every_section_is_reached_by_a_link():
    reader = read(render_page(page_of(analysis(), title="t")))
    links = {(attributes["href"] or "")[1:] for tag, attributes in reader.tags if tag == "a"}
    sections = {attributes["id"] for tag, attributes in reader.tags if tag == "section"}
    assert sections
    assert sections <= links


def test_the_page_is_small_beside_its_data():
    text = render_page(page_of(analysis(), title="t"))
    assert len(text.encode()) < 300_000


def test_the_same_analysis_gives_the_same_page(tmp_path: Path):
    for name in ("a", "b"):
        write_html(analysis(), path=tmp_path / "new" / f"{name}.html", title="t")
    written = [(tmp_path / "new" / f"{name}.html").read_bytes() for name in ("a", "b")]
    assert written[0] == written[1]


def test_what_stood_there_is_replaced(tmp_path: Path):
    path = tmp_path / "report.html"
    path.write_text("x" * 1_000_000)
    write_html(analysis(), path=path)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(path.read_text(encoding="utf-8")) < 1_000_000


@pytest.mark.parametrize("target", ["file/below.html", ".", "null\0byte.html", "x" * 300])
def test_a_target_that_cannot_be_written_is_an_output_error(tmp_path: Path, target: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .* Give a"):
        write_html(analysis(), path=tmp_path / target)
