"""Pages of what was sampled, in a browser: nothing is loaded or logged, marks lie within the picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, browser
from conccl.report.page import Page, write_page
from conccl.report.sampled import write_iterations_page, write_kernels_page
from conccl.report.sections.phases import Phases, phases
from conccl.sampling.kernels import sample_kernels
from conccl.sampling.logs import IterationLog
from conccl.sampling.study import study_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as session:
        yield session


OUTSIDE = """
const outside = [];
for (const svg of document.querySelectorAll("figure svg")) {
  const box = svg.getBoundingClientRect();
  for (const shape of svg.querySelectorAll("circle, rect, text")) {
    const own = shape.getBoundingClientRect();
    const across = own.left < box.left - 1 || own.right > box.right + 1;
    if (across || own.top < box.top - 1 || own.bottom > box.bottom + 1)
      outside.push(shape.outerHTML.slice(0, 90));
  }
}
return outside;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return written(tmp_path_factory.mktemp("pages"))


def written(folder: Path) -> list[Path]:
    random = np.random.default_rng(4)
    pages = []
    for dimensions, names in ((1, ("length",)), (2, ("length_source", "length_target"))):
        length = 8 * random.integers(1, 60, (400, dimensions))
        log = IterationLog(
            iteration=np.arange(400),
            length=length,
            statistics={"time_ms": length.sum(axis=1) ** 1.2},
            names=names,
        )
        pages.append(folder / f"{dimensions}.html")
        write_iterations_page(study_run(log), path=pages[-1], source="</title><b>log.csv")
    durations = (10 ** random.uniform(2, 7, 500)).astype(np.int64)
    kernels = [f"kernel_{i % 9}<float, 128>" for i in range(500)]
    pages.append(folder / "kernels.html")
    sample = sample_kernels(kernels, durations)
    write_kernels_page(sample, kernels, durations, path=pages[-1], source="trace.json")
    pages.append(folder / "phases.html")
    run = Phases(label="gzip", phase=[i // 9 % 4 for i in range(400)], points={3: 0.5, 12: 0.5})
    write_page(Page(title="Phases", subtitle="", sections=(phases([run]),)), path=pages[-1])
    return pages


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_quiet_and_whole(chromium: Browser, pages: list[Path], width: int) -> None:
    chromium.resize(width=width, height=900)
    for page in pages:
        chromium.open(page)
        chromium.frame()
        assert chromium.console() == []
        assert chromium.requests() == [page.resolve().as_uri()]
        assert chromium.run(OUTSIDE) == []
        assert chromium.run("return document.querySelectorAll('g.chosen').length") > 0
        assert chromium.run("return document.documentElement.scrollWidth <= window.innerWidth")


def test_a_circle_says_what_it_stands_for(chromium: Browser, pages: list[Path]) -> None:
    chromium.open(pages[0])
    titles = chromium.run("return [...document.querySelectorAll('.chosen title')].map((t) => t.textContent)")
    assert titles
    assert all("stands for" in title for title in titles)
