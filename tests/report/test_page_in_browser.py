from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import Browser, browser
from conccl.advise.analysis import Analysis, Drawing
from conccl.advise.analyze import analyze
from conccl.core.timeline import Activity
from conccl.report.html import write_html
from example_analysis import HOSTILE, MS, analysis, hostile_analysis, rank_analysis

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as session:
        session.resize(width=1280, height=900)
        yield session


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Browser:
    """The page of an ordinary run."""
    return show(chromium, tmp_path, analysis())


def show(chromium: Browser, folder: Path, run: Analysis | dict[str, Analysis]) -> Browser:
    write_html(run, path=folder / "page.html")
    chromium.theme("light")
    chromium.open(folder / "page.html")
    chromium.frame()
    return chromium


def many_rows(count: int, seed: int) -> Drawing:
    """A drawing of this many short kernels on two streams."""
    numbers = np.random.default_rng(seed)
    edges = np.sort(numbers.choice(400 * MS, size=2 * count, replace=False)).astype(np.int64)
    state = np.where(np.arange(2 * count - 1) % 2 == 0, 0, 4).astype(np.int8)
    return Drawing(
        window="the whole trace",
        origin_ns=0,
        span_ns=int(edges[-1]),
        names=tuple(f"kernel_{i}" for i in range(50)),
        lanes=("stream 7", "stream 8"),
        start_ns=edges[0::2],
        end_ns=edges[1::2],
        name_id=numbers.integers(0, 50, count).astype(np.int32),
        lane_id=(np.arange(count) % 2).astype(np.int32),
        activity=np.where(np.arange(count) % 2, Activity.COMMUNICATION, Activity.COMPUTE).astype(np.int8),
        state_start_ns=np.concatenate(([0], edges[:-1])),
        state_end_ns=edges,
        state=np.concatenate(([4], state)).astype(np.int8),
        marks=(),
        left_out=0,
    )


def ruler(session: Browser) -> str:
    """A picture of the ruler: it differs when the view does."""
    picture: str = session.run("return document.querySelector('.row.ruler canvas').toDataURL()")
    return picture


def status(session: Browser) -> str:
    text: str = session.run("return document.querySelector('.picked').textContent")
    return text


def place(session: Browser, selector: str) -> dict[str, float]:
    box: dict[str, float] = session.run(
        "const node = document.querySelector(arguments[0]); node.scrollIntoView({block: 'center', behavior:"
        " 'instant'}); const b = node.getBoundingClientRect();"
        " return {x: b.x, y: b.y, width: b.width, height: b.height};",
        selector,
    )
    session.frame()
    return box


@pytest.mark.parametrize("count", [1, 2])
def test_loads_without_console_messages_and_without_asking_for_anything(
    chromium: Browser, tmp_path: Path, count: int
):
    show(chromium, tmp_path, {f"run {i}": analysis() for i in range(count)})
    assert chromium.console() == []
    assert chromium.requests() == [(tmp_path / "page.html").as_uri()]


def test_the_shipped_example_shows_its_difference_at_a_glance(chromium: Browser, tmp_path: Path):
    # GIVEN the two recorded steps, copies by SMs and by copy engines
    examples = Path(__file__).resolve().parents[2] / "examples" / "overlap_step"
    runs = {
        label: analyze([examples / f"{name}.pt.trace.json.gz"], host_copies="communication", processes=1)
        for label, name in (("SM kernels", "sm"), ("copy engines", "ce"))
    }
    # WHEN both stand on one page
    show(chromium, tmp_path, runs)
    # THEN the first screen tells serial from ideal, and the timelines share their scale
    sm, ce = (float(text) for text in chromium.run(READINGS, "#headline .big"))
    assert sm < 0.4
    assert ce > 0.85
    assert chromium.run(READINGS, "#timeline .chart h4") == ["SM kernels", "copy engines"]
    assert chromium.run(
        "return document.querySelector('#headline .needle').getBoundingClientRect().top < 900"
    )
    assert chromium.console() == []
    assert (tmp_path / "page.html").stat().st_size < 1_000_000


def test_hostile_names_are_text_and_nothing_of_them_runs(chromium: Browser, tmp_path: Path):
    show(chromium, tmp_path, hostile_analysis())
    assert chromium.run("return window.hacked") is None
    assert chromium.run("return document.querySelectorAll('img').length") == 0
    assert chromium.run("return document.querySelectorAll('script').length") == 2
    # Also not once they are shown by the script: in the tooltip and the line below the timeline.
    place(chromium, ".timeline .plot")
    chromium.run("document.querySelector('.timeline .plot').focus()")
    chromium.key(".")
    assert HOSTILE[0] in status(chromium)
    box = place(chromium, ".row.rank canvas")
    chromium.point(box["x"] + 20, box["y"] + 28)
    assert chromium.run("return document.querySelector('#tip .name').textContent") == HOSTILE[0]
    assert chromium.run("return window.hacked") is None
    assert chromium.console() == []


def test_the_policy_stops_a_script_even_where_escaping_failed(chromium: Browser, tmp_path: Path):
    write_html(analysis(), path=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    attack = "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'>"
    (tmp_path / "page.html").write_text(text.replace("<footer>", attack + "<footer>"), encoding="utf-8")
    chromium.open(tmp_path / "page.html")
    assert chromium.run("return window.hacked") is None
    assert any("Content Security Policy" in message for message in chromium.console())


READINGS = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
SORTED = """
const [title, label] = arguments;
const blocks = [...document.querySelectorAll('.block.table')];
const block = blocks.find((b) => b.querySelector('h3').textContent === title);
const heads = [...block.querySelectorAll('thead th')];
const column = heads.findIndex((head) => head.textContent.trim() === label);
heads[column].querySelector('button').click();
const rows = [...block.querySelectorAll('tbody tr')].filter((row) => !row.hidden);
const texts = rows.map((row) => row.cells[column].textContent);
return {texts, sort: heads[column].getAttribute('aria-sort')};
"""
FILTERED = """
const input = document.querySelector('#collectives input[type=search]');
input.value = arguments[0];
input.dispatchEvent(new Event('input'));
const rows = [...document.querySelectorAll('#collectives tbody tr')].filter((row) => !row.hidden);
const said = document.querySelector('#collectives output').textContent;
return [rows.map((row) => row.cells[1].textContent), said];
"""
REDRAW = """
const begin = performance.now();
window.dispatchEvent(new Event('beforeprint'));
const spent = performance.now() - begin;
window.dispatchEvent(new Event('afterprint'));
return spent;
"""
WHEEL = """
const [turn] = arguments;
const wheel = {deltaY: turn, ctrlKey: true, bubbles: true, cancelable: true};
document.querySelector('.row.rank canvas').dispatchEvent(new WheelEvent('wheel', wheel));
"""


def collectives_of(times_ms: list[int | None]) -> Analysis:
    first = analysis().collectives[0]
    return dataclasses.replace(
        analysis(),
        collectives=tuple(
            dataclasses.replace(first, wait_ns=None if ms is None else ms * MS, group=f"group-{i}")
            for i, ms in enumerate(times_ms)
        ),
    )


def test_numbers_sort_by_value_and_the_unknown_stay_last(chromium: Browser, tmp_path: Path):
    show(chromium, tmp_path, collectives_of([9, None, 100, 2, None, 30]))
    largest_first = chromium.run(SORTED, "By kind, group and size", "Wait")
    assert largest_first == {
        "texts": ["100 ms", "30 ms", "9 ms", "2 ms", "-", "-"],
        "sort": "descending",
    }
    smallest_first = chromium.run(SORTED, "By kind, group and size", "Wait")
    assert smallest_first == {
        "texts": ["2 ms", "9 ms", "30 ms", "100 ms", "-", "-"],
        "sort": "ascending",
    }


def test_a_filter_keeps_rows_with_every_word(chromium: Browser, tmp_path: Path):
    show(chromium, tmp_path, collectives_of([*range(30)]))
    assert chromium.run(FILTERED, "ALL_REDUCE group-17") == [["group-17"], "1 of 30"]
    assert chromium.run(FILTERED, "group-2") == [
        ["group-2", *(f"group-{number}" for number in range(20, 30))],
        "11 of 30",
    ]
    assert chromium.run(FILTERED, "RING_LL(nccl")[1] == "30 of 30"  # the whole of a shortened name
    assert chromium.run(FILTERED, "nothing of that name") == [[], "0 of 30"]


def test_long_tables_show_their_first_rows_until_asked(chromium: Browser, tmp_path: Path):
    show(chromium, tmp_path, collectives_of([*range(30)]))
    count = "return [...document.querySelectorAll('#collectives tbody tr')].filter((r) => !r.hidden).length"
    assert chromium.run(count) == 15
    chromium.run("document.querySelector('#collectives .more').click()")
    assert chromium.run(count) == 30


def test_zooms_by_button_key_and_wheel_and_fits_again(opened: Browser):
    whole = ruler(opened)
    opened.run("document.querySelector('[data-do=zoom-in]').click()")
    opened.frame()
    by_button = ruler(opened)
    assert by_button != whole
    opened.run("document.querySelector('.timeline .plot').focus()")
    opened.key("+")
    opened.frame()
    assert ruler(opened) not in {whole, by_button}
    opened.key("0")
    opened.frame()
    assert ruler(opened) == whole
    opened.run(WHEEL, -50)
    opened.frame()
    assert ruler(opened) != whole


def test_drags_move_and_never_leave_the_timeline(opened: Browser):
    opened.run("document.querySelector('[data-do=zoom-in]').click()")
    opened.frame()
    before = ruler(opened)
    box = place(opened, ".row.rank canvas")
    middle = box["y"] + 30
    opened.drag((box["x"] + 500, middle), (box["x"] + 300, middle))
    opened.frame()
    assert ruler(opened) != before
    for _ in range(12):
        opened.drag((box["x"] + 50, middle), (box["x"] + 750, middle))
    opened.frame()
    farthest = ruler(opened)
    opened.drag((box["x"] + 50, middle), (box["x"] + 750, middle))
    opened.frame()
    assert ruler(opened) == farthest


def test_a_pointed_kernel_tells_its_name_duration_and_step(opened: Browser):
    box = place(opened, ".row.rank canvas")
    opened.point(box["x"] + box["width"] * 0.1, box["y"] + 28)
    lines = opened.run("return [...document.querySelectorAll('#tip p')].map((p) => p.textContent)")
    assert lines[0].startswith("void cutlass")
    assert lines[1] == "6 ms from 0 ns"
    assert lines[2] == "rank 0 · compute · 7 · step 0"
    opened.point(box["x"] + box["width"] * 0.1, box["y"] + 8)
    lines = opened.run("return [...document.querySelectorAll('#tip p')].map((p) => p.textContent)")
    assert lines[:2] == ["compute only", "4 ms from 0 ns"]
    opened.point(2, 2)
    assert opened.run("return document.getElementById('tip').hidden") is True


def test_keys_go_from_kernel_to_kernel_and_announce_them(opened: Browser):
    opened.run("document.querySelector('.timeline .plot').focus()")
    opened.key(".")
    assert "6 ms from 0 ns" in status(opened)
    opened.key(".")
    assert "6 ms from 10 ms" in status(opened)
    opened.key("\ue015")  # arrow down: the lane below
    assert "communication" in status(opened)
    assert opened.run("return document.querySelector('.picked').getAttribute('aria-live')") == "polite"


def test_steps_are_chosen_by_list_and_by_bracket(opened: Browser):
    opened.run("document.querySelector('.timeline .plot').focus()")
    opened.key("]")
    opened.frame()
    assert opened.run("return document.querySelector('.steps select').value") == "0"
    first = ruler(opened)
    opened.key("]")
    opened.frame()
    assert opened.run("return document.querySelector('.steps select').value") == "1"
    assert ruler(opened) != first
    assert opened.run("return document.querySelector('.steps select').options.length") == 4


def test_ranks_fold_and_tell_it(opened: Browser):
    tall = place(opened, ".row.rank canvas")["height"]
    opened.run("document.querySelector('.row.rank .fold').click()")
    opened.frame()
    assert place(opened, ".row.rank canvas")["height"] < tall
    assert (
        opened.run("return document.querySelector('.row.rank .fold').getAttribute('aria-expanded')")
        == "false"
    )


def test_finding_a_kernel_counts_names_and_enter_goes_there(opened: Browser):
    opened.run(
        "const find = document.querySelector('.find input'); find.focus(); find.value = 'allreduce';"
        " find.dispatchEvent(new Event('input'));"
    )
    assert "1 name found" in status(opened)
    opened.key("\ue007")
    assert "AllReduce" in status(opened)


def test_the_strip_shows_exact_shares(opened: Browser):
    # Steps of 10 ms: 4 compute only, 2 communication only, 2 both, 1 copy only, 1 idle.
    counts: dict[str, int] = opened.run(
        """
        const canvas = document.querySelector('.row.rank canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 4, canvas.width, 1).data;
        const style = getComputedStyle(document.documentElement);
        const counts = {};
        for (const kind of ['compute', 'communication', 'both', 'copy', 'idle']) {
          const colour = style.getPropertyValue(`--${kind}`).trim();
          const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
          counts[kind] = 0;
          for (let x = 0; x < canvas.width; x++)
            if (pixels[4 * x] === r && pixels[4 * x + 1] === g && pixels[4 * x + 2] === b) counts[kind]++;
        }
        return counts;
        """
    )
    whole = sum(counts.values())
    shares = {kind: count / whole for kind, count in counts.items()}
    expected = {"compute": 0.4, "communication": 0.2, "both": 0.2, "copy": 0.1, "idle": 0.1}
    assert shares == pytest.approx(expected, abs=0.015)


def test_two_timelines_share_scale_and_view(chromium: Browser, tmp_path: Path):
    short = analysis(ranks=1)
    show(chromium, tmp_path, {"a": analysis(ranks=1), "b": short})
    rulers = "return [...document.querySelectorAll('.row.ruler canvas')].map((c) => c.toDataURL())"
    first, second = chromium.run(rulers)
    assert first == second
    chromium.run("document.querySelector('[data-do=zoom-in]').click()")
    chromium.frame()
    zoomed = chromium.run(rulers)
    assert zoomed[0] == zoomed[1] != first


def test_a_hundred_thousand_kernels_draw_in_a_frame(chromium: Browser, tmp_path: Path):
    ranks = tuple(
        dataclasses.replace(rank_analysis(rank), drawing=many_rows(12_500, rank)) for rank in range(8)
    )
    show(chromium, tmp_path, dataclasses.replace(analysis(ranks=8), ranks=ranks))
    chromium.run(
        "document.querySelector('[data-do=fold]').click(); document.querySelector('[data-do=fold]').click();"
    )
    chromium.frame()
    spent = []
    for turn in range(9):
        chromium.run(WHEEL, 40 if turn % 2 else -40)
        spent.append(chromium.run(REDRAW))
    # A frame at 60 Hz lasts 16.7 ms; the machine that tests has few cores, shared, and no GPU.
    assert statistics.median(spent) < 60, f"redraws took {spent} ms"


def test_dark_is_drawn_dark_and_print_light(opened: Browser):
    strip = """
    const canvas = document.querySelector('.row.rank canvas');
    return [...canvas.getContext('2d').getImageData(canvas.width * 0.18, 4, 1, 1).data].slice(0, 3);
    """
    assert opened.run(strip) == [0x1D, 0x7A, 0x5F]
    opened.theme("dark")
    opened.frame()
    assert opened.run(strip) == [0x5F, 0xCF, 0xBA]
    opened.run("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.run(strip) == [0x1D, 0x7A, 0x5F]
    opened.run("window.dispatchEvent(new Event('afterprint'))")
    assert opened.run(strip) == [0x5F, 0xCF, 0xBA]


def test_narrow_screens_do_not_scroll_sideways(opened: Browser):
    opened.resize(width=380, height=800)
    try:
        opened.frame()
        assert opened.run("return document.documentElement.scrollWidth <= window.innerWidth") is True
    finally:
        opened.resize(width=1280, height=900)


def test_everything_that_acts_can_be_reached_by_keyboard_and_has_a_name(opened: Browser):
    nameless: list[Any] = opened.run(
        """
        return [...document.querySelectorAll('button, input, select, [role=application]')].filter((node) => {
          const name = node.getAttribute('aria-label') || node.title || node.textContent.trim()
            || (node.labels && node.labels.length && node.labels[0].textContent.trim());
          return !name;
        }).map((node) => node.outerHTML);
        """
    )
    assert nameless == []


def test_random_keys_never_break_the_page(opened: Browser):
    opened.run("document.querySelector('.timeline .plot').focus()")
    keys = random.Random(1)
    for _ in range(60):
        opened.key(keys.choice("+-0[],.f=\ue012\ue013\ue014\ue015\ue011\ue00c"))
    assert opened.console() == []
    assert opened.run("return document.querySelectorAll('.row.rank canvas').length") == 2
