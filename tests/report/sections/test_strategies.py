"""The section of a characterisation: averages, every pair, a sweep's lines."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from conccl.bench.characterize import strategies_of
from conccl.bench.results import Characterization
from conccl.bench.sweep import Sweep, Variation, variations
from conccl.cli.main import app
from conccl.core.kinds import CollectiveKind
from conccl.core.metrics import PairClass
from conccl.core.movement import Collective
from conccl.core.ops import Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device
from conccl.report.blocks import DataTable, Lines, Notes, Series, SignedBars, Tick
from conccl.report.page import Page, render_page
from conccl.report.sections.strategies import strategies

NAMES = ("serial", "baseline", "prioritized", "ce", "chunked")
PAIRS = tuple(
    Pair(
        compute=Gemm(m=m, n=8192, k=8192),
        communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=256 << 20, ranks=8),
        source=f"<b>layer {m}</b>",
    )
    for m in (1024, 4096, 16384)
)


def found(axes: dict[str, list[object]] | None = None) -> list[tuple[Variation, Characterization]]:
    sweep = Sweep(executor="sim", gpus=8, strategies=strategies_of(NAMES))
    devices = variations(load_device("h200-sxm"), axes or {})
    return [(each, sweep.run(each, PAIRS)) for each in devices]


@pytest.fixture(scope="module")
def one() -> list[tuple[Variation, Characterization]]:
    return found()


def test_bars_are_the_averages_of_each_class(one: list[tuple[Variation, Characterization]]) -> None:
    (bars,) = [block for block in strategies(one).blocks if isinstance(block, SignedBars)]
    characterization = one[0][1]
    assert bars.groups[0].label == "All pairs: 3"
    assert sum(int(group.label.split(": ")[1]) for group in bars.groups[1:]) == 3
    for group in bars.groups:
        class_ = next((each for each in PairClass if group.label.startswith(str(each))), None)
        for bar in group.bars:
            average = characterization.average_fraction(bar.label, of=class_)
            assert bar.value == (None if average is None else pytest.approx(average, abs=0.005))
        assert max(bar.value for bar in group.bars if bar.value is not None) in {
            bar.value for bar in group.bars if bar.best
        }


def test_every_pair_stands_with_fraction_and_speedup(one: list[tuple[Variation, Characterization]]) -> None:
    (table,) = [block for block in strategies(one).blocks if isinstance(block, DataTable)]
    assert len(table.rows) == 3
    column = [each.label for each in table.columns].index("ce")
    overlap = one[0][1].pairs[0].strategies["ce"].overlap
    assert overlap is not None
    assert table.rows[0][column].text == f"{overlap.fraction_of_ideal:.2f} ({overlap.speedup:.2f}x)"


def test_what_has_no_figure_says_why(one: list[tuple[Variation, Characterization]]) -> None:
    (notes,) = [block for block in strategies(one).blocks if isinstance(block, Notes)]
    assert any("chunked" in note.title for note in notes.notes)


def test_a_sweep_is_lines_along_what_was_varied() -> None:
    swept = found({"copy_engines.count": [1, 2, 16]})
    (lines,) = [block for block in strategies(swept).blocks if isinstance(block, Lines)]
    assert lines.x_label == "copy_engines.count"
    assert [tick.label for tick in lines.x_ticks] == ["1", "2", "16"]
    assert lines.is_log
    engines = next(series for series in lines.series if series.label.startswith("ce"))
    assert [x for x, _, _ in engines.points] == [1, 2, 16]
    for (_, y, _), (_, characterization) in zip(engines.points, swept, strict=True):
        assert y == pytest.approx(characterization.average_fraction("ce"), abs=0.005)


def test_several_fields_stand_side_by_side() -> None:
    swept = found({"copy_engines.count": [1, 2], "l2_nbytes": [50_000_000, 60_000_000]})
    (lines,) = [block for block in strategies(swept).blocks if isinstance(block, Lines)]
    assert lines.x_label == "copy_engines.count, l2_nbytes"
    assert len(lines.x_ticks) == 4
    assert not lines.is_log


def test_on_the_page_names_are_inert(
    one: list[tuple[Variation, Characterization]],
) -> None:
    text = render_page(Page(title="A page", subtitle="", sections=(strategies(one),)))
    assert "&lt;b&gt;layer 1024&lt;/b&gt;" in text
    assert "<b>layer" not in text


@given(st.lists(st.floats(min_value=-3, max_value=3), min_size=1, max_size=8))
def test_labels_never_touch_and_stay_in_the_picture(ends: list[float]) -> None:
    lines = Lines(
        title="",
        rule="",
        x_label="",
        x_ticks=(Tick(value=0, label="0"), Tick(value=1, label="1")),
        y_ticks=(Tick(value=0, label="0"), Tick(value=1, label="1")),
        series=tuple(Series(label=str(end), points=((0.0, 0.0, ""), (1.0, end, ""))) for end in ends),
    )
    heights = sorted(lines.labels())
    assert all(below - above >= lines.between - 1e-6 for above, below in itertools.pairwise(heights))
    assert heights[-1] <= lines.height - lines.bottom
    assert heights[0] >= 0


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(
        app,
        [
            *("characterize", "llama3-8b", "--fsdp", "8", "--device", "h200-sxm"),
            *("--strategies", "serial,ce", "--vary", "device.copy_engines.count=1,4", "--html", str(page)),
        ],
    )
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert '<section id="strategies"' in text
    assert "<polyline" in text


def test_a_policys_cells_say_what_it_chose() -> None:
    sweep = Sweep(executor="sim", gpus=8, strategies=strategies_of(["policy", "ce"]))
    device = Variation(device=load_device("h200-sxm"))
    (table,) = [
        block
        for block in strategies([(device, sweep.run(device, PAIRS))]).blocks
        if isinstance(block, DataTable)
    ]
    texts = [cell.text for row in table.rows for cell in row]
    assert any(text.endswith(": ce") for text in texts)
    assert any("by copy engines" in cell.full for row in table.rows for cell in row)
