"""Names from traces as people may safely see them: inert, and no longer than there is room.

A kernel's name is whatever a program wrote into a file. Control characters could drive a terminal, and
bidirectional overrides could make one name look like another (Unicode TR 36), so both are spelled out.
"""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that show nothing of themselves but change what is shown around them."""

_ELLIPSIS = "…"


def shown(name: str, /) -> str:
    r"""The name with every invisible or directing character spelled out.

    >>> shown("gemm\x1b[31m")
    'gemm\\x1b[31m'
    """
    if name.isascii() and name.isprintable():
        return name
    return "".join(_spelled(character) for character in name)


def short(name: str, /, *, width: int) -> str:
    """The name in at most ``width`` characters: without parameters, then template arguments, then middle.

    >>> short("void at::gemm<float, 4>(float*, int)", width=20)
    'at::gemm<float, 4>'
    """
    name = shown(name)
    for simpler in (_without_decoration, _without_templates):
        if len(name) <= width:
            return name
        name = simpler(name)
    if len(name) <= width:
        return name
    if width <= 1:
        return _ELLIPSIS[:width]
    tail = (width - 1) // 3
    return f"{name[: width - 1 - tail]}{_ELLIPSIS}{name[len(name) - tail :]}"


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _without_decoration(name: str) -> str:
    """Without the return type and the parameter list, which say little about a kernel."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    if name.endswith(")"):
        opens = _opening(name)
        if opens > 0:
            return name[:opens]
    return name


def _opening(name: str) -> int:
    """Where the parenthesis that ends the name was opened; -1 where it never was."""
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if depth == 0:
            return place
    return -1


def _without_templates(name: str) -> str:
    """With ``<...>`` for template arguments; names whose angles do not pair stay as they are."""
    kept: list[str] = []
    depth = 0
    before = ""
    for character in name:
        if character == "<" and not (before.isalnum() or before == "_") and depth == 0:
            return name
        before = character
        if character == "<":
            kept.extend("<…" if depth == 0 else "")
            depth += 1
        elif character == ">":
            depth -= 1
        if depth < 0:
            return name
        if depth == 0:
            kept.append(character)
    return name if depth else "".join(kept)
