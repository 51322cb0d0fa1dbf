"""The frame of every HTML page: one self-contained file of sections, whoever made them.

Nothing is fetched when the page is opened: styles, scripts and data are inside. Two walls keep names from
traces inert: the templates escape every text, and a content security policy allows the page's own script (by
its hash) and nothing else. Data for the script stands in a JSON island in which ``<``, ``>`` and ``&`` are
written as escapes, so that no text can end it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from conccl import __version__
from conccl.core.files import write_file
from conccl.report.blocks import Section, TimelineChart
from conccl.report.names import shown
from conccl.report.palette import css_variables

_SCRIPTS = ("frame.js", "tables.js", "rows.js", "paint.js", "timeline.js")
"""In order: later ones use what earlier ones define."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one page shows."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]


def render_page(page: Page, /) -> str:
    """The page as HTML text."""
    script, style = _script(), style_sheet()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            script=script,
            style=style,
            script_hash=_hash(script),
            style_hash=_hash(style),
            data=data_island(_data(page)),
            version=__version__,
        )
    )


def write_page(page: Page, /, *, path: str | Path) -> None:
    """Write the page to a file, replacing what stood there; `OutputError` where that cannot be."""
    # A lone surrogate, which some traces hold, has no UTF-8 form.
    write_file(path, [render_page(page).encode("utf-8", "replace")])


def data_island(document: Mapping[str, Any], /) -> str:
    r"""A document as JSON that no text inside can end or turn into markup.

    >>> data_island({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&"})


def _data(page: Page) -> dict[str, Any]:
    """What the script reads: the data of each timeline, by its place on the page."""
    timelines = [
        block.data
        for section in page.sections
        for block in section.blocks
        if isinstance(block, TimelineChart)
    ]
    return {"timelines": timelines}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _script() -> str:
    return "(() => {\n'use strict';\n" + "".join(_asset(name) for name in _SCRIPTS) + "start();\n})();\n"


@cache
def style_sheet() -> str:
    """The palette and the page's own rules, light and dark."""
    light, dark = css_variables("light"), css_variables("dark")
    in_dark = f"@media screen and (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}"
    return f":root{{{light}}}\n{in_dark}\n" + _asset("page.css")


def _asset(name: str) -> str:
    return (resources.files("conccl.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conccl.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    return environment
