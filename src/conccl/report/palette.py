"""The one set of colours: compute, communication, both, copy and idle look the same in every plot.

Chosen by a search in OKLab for the largest least distance between any two of the five, under normal vision
and simulated protanopia, deuteranopia and tritanopia (Machado et al. 2009), on both themes; a test keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    """One meaning's colour on a light page, on a dark page, and in a terminal."""

    light: str
    light_ink: str
    """Text upon it."""
    dark: str
    dark_ink: str
    terminal: str


PALETTE: dict[str, Colour] = {
    "compute": Colour(
        light="#6c9bea", light_ink="#0c1a33", dark="#4f84e8", dark_ink="#060c1a", terminal="blue"
    ),
    "communication": Colour(
        light="#e8903c", light_ink="#331a02", dark="#e88a42", dark_ink="#221304", terminal="yellow"
    ),
    "both": Colour(
        light="#1d7a5f", light_ink="#ffffff", dark="#5fcfba", dark_ink="#04211b", terminal="green"
    ),
    "copy": Colour(
        light="#8242b8", light_ink="#ffffff", dark="#a3509a", dark_ink="#ffffff", terminal="magenta"
    ),
    "idle": Colour(
        light="#e4e6ea", light_ink="#3d444d", dark="#2a3038", dark_ink="#c3c9d1", terminal="bright_black"
    ),
}
"""What time is spent on -> its colour."""

STATE_COLOURS = ("compute", "communication", "both", "copy", "idle")
"""The palette's key of each state of `conccl.traces.states.STATES`."""


def css_variables(theme: str, /) -> str:
    """Custom properties for one theme (light or dark): ``--compute``, ``--compute-ink`` and so on."""
    return "".join(
        f"--{name}:{getattr(colour, theme)};--{name}-ink:{getattr(colour, f'{theme}_ink')};"
        for name, colour in PALETTE.items()
    )
