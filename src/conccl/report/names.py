"""Names from traces as people may safely see them: inert, and no longer than there is room.

A kernel's name is whatever a program wrote into a file. Control characters could drive a terminal, and
bidirectional overrides could make one name look like another (Unicode TR 36), so both are spelled out.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that show nothing of themselves but change what is shown around them."""

_ELLIPSIS = "…"

_NAMESPACE = re.compile(r"\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_])")


def shown(name: str, /) -> str:
    r"""The name with every invisible or directing character spelled out.

    >>> shown("gemm\x1b[31m")
    'gemm\\x1b[31m'
    """
    if name.isascii() and name.isprintable():
        return name
    return "".join(_spelled(character) for character in name)


def short(name: str, /, *, width: int) -> str:
    """The name in at most ``width`` characters, what says least left out first.

    First go the return type and the parameters, then namespaces, then what template arguments nest, then the
    end of those arguments; of a name without any, the middle.

    >>> short("void at::native::reduce_kernel<512, ReduceOp<float, Sum>>(Reduce)", width=32)
    'reduce_kernel<512, ReduceOp<…>>'
    """
    name = shown(name)
    for simpler in (_without_decoration, _without_namespaces, _without_nested_templates):
        if len(name) <= width:
            return name
        name = simpler(name)
    if len(name) <= width:
        return name
    if width <= 1:
        return _ELLIPSIS[:width]
    if name.find("<") > 0:
        return name[: width - 1] + _ELLIPSIS
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


def _without_namespaces(name: str) -> str:
    return _NAMESPACE.sub("", name).replace(" >", ">")


def _without_nested_templates(name: str) -> str:
    """With ``<…>`` for the arguments of template arguments; angles that do not pair stay as they are."""
    kept: list[str] = []
    depth = 0
    for character in name:
        if character == "<":
            kept.extend("<…" if depth == 1 else "<" if depth == 0 else "")
            depth += 1
        elif character == ">":
            depth -= 1
            kept.extend(">" if depth <= 1 else "")
        elif depth <= 1:
            kept.append(character)
        if depth < 0:
            return name
    return name if depth else "".join(kept)
