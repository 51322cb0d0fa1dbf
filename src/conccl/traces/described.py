"""What the arguments of a GPU row or a label say of a collective, as they stand in the file."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

_NOTHING = msgspec.Raw(b"")


class Described(NamedTuple):
    """Kineto's collective metadata; None where there is none, and of any type, since files hold anything."""

    name: Any
    group: Any
    group_ranks: Any
    group_size: Any
    sequence: Any
    dtype: Any
    in_elements: Any
    out_elements: Any


class LabelDetails(NamedTuple):
    """What tells labels around communication apart: of thousands in a trace, a few."""

    said: Described
    input_dims: bytes
    """JSON text; empty where there is none."""
    input_types: bytes


NO_DETAILS = LabelDetails(
    said=Described(
        name=None,
        group=None,
        group_ranks=None,
        group_size=None,
        sequence=None,
        dtype=None,
        in_elements=None,
        out_elements=None,
    ),
    input_dims=b"",
    input_types=b"",
)
"""Of a label that says nothing but its name."""


class LabelArguments(msgspec.Struct, gc=False):
    """What the reader uses of the arguments of a label around communication."""

    name: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    sequence: Any = msgspec.field(default=None, name="Seq")
    dtype: Any = None
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    input_dims: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    input_types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")

    @property
    def details(self) -> LabelDetails:
        """The same as a key."""
        if self.name is None and self.input_dims is _NOTHING:
            return NO_DETAILS
        said = Described(
            name=self.name,
            group=self.group,
            group_ranks=self.group_ranks,
            group_size=self.group_size,
            sequence=self.sequence,
            dtype=self.dtype,
            in_elements=self.in_elements,
            out_elements=self.out_elements,
        )
        return LabelDetails(said=said, input_dims=bytes(self.input_dims), input_types=bytes(self.input_types))
