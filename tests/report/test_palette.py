from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt
import pytest

from conccl.report.page import style_sheet
from conccl.report.palette import PALETTE, STATE_COLOURS, css_variables

Vector = npt.NDArray[np.float64]

VISION = {
    "normal": np.eye(3),
    # Machado, Oliveira, Fernandes 2009, severity 1.0, linear RGB.
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
BACKGROUND = {"light": "#ffffff", "dark": "#14181d"}


def linear(colour: str) -> Vector:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def oklab(rgb: Vector) -> Vector:
    """Björn Ottosson, "A perceptual color space for image processing", 2020."""
    lms = np.array(
        [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    ) @ np.clip(rgb, 0, 1)
    return np.array(
        [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    ) @ np.cbrt(lms)


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio."""
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_every_two_colours_differ_for_every_eye(theme: str, vision: str):
    seen = [oklab(VISION[vision] @ linear(getattr(colour, theme))) for colour in PALETTE.values()]
    least = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))
    assert least > 0.12


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_on_every_colour_and_colours_stand_out(theme: str):
    for name, colour in PALETTE.items():
        assert contrast(getattr(colour, theme), getattr(colour, f"{theme}_ink")) >= 4.5, name
        if name != "idle":
            assert contrast(getattr(colour, theme), BACKGROUND[theme]) >= 2.4, name


def test_states_have_colours_and_themes_have_variables():
    assert set(STATE_COLOURS) <= set(PALETTE)
    assert "--both:#1d7a5f;--both-ink:#ffffff;" in css_variables("light")


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "muted", "problem", "warning"])
@pytest.mark.parametrize("ground", ["paper", "panel", "soft"])
def test_text_of_the_page_is_readable(place: int, text: str, ground: str):
    def colour(name: str) -> str:
        return re.findall(rf"--{name}: (#[0-9a-f]{{6}});", style_sheet())[place]

    assert contrast(colour(text), colour(ground)) >= 4.5
