"""What is picked without decoding is what a JSON parser finds wanted, whatever stands in the events."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.traces.event_stream import EventStream
from conccl.traces.events import CATEGORIES, Category
from conccl.traces.host_rows import LABELS_AMONG_OPS
from conccl.traces.sifting import Sifter
from conccl.traces.unpacking import Plain

Event = dict[str, Any]

IDLE = ("cudaEventQuery", "cudaStreamWaitEvent", "cudaOccupancyMaxActiveBlocksPerMultiprocessor")
NAMES = st.one_of(
    st.sampled_from(
        [
            *('},\n  {\n    "ph": "X", "cat": "kernel", "name": "false', "}, {", "[{", "\\", '"', "", "x: {"),
            *("lambda()#1}::operator(){", "ncclDevKernel_AllReduce", "nccl:all_reduce", "ProfilerStep#3"),
            *("record_param_comms", "aten::mm", "cudaLaunchKernel", "cudaGraphLaunch", *IDLE),
        ]
    ),
    st.text(max_size=8),
)
NESTED = st.recursive(
    NAMES | st.integers(-5, 5) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
LAYOUTS = st.sampled_from([{"indent": 2}, {"indent": None}, {"separators": (",", ":")}, {"indent": 0}])


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[Event, str]:
    """An event, mostly as Kineto writes it, and its text."""
    event = {
        "ph": draw(st.sampled_from("XXXXfsiMB")),
        "cat": draw(
            st.sampled_from(
                [
                    *(
                        "kernel",
                        "kernel",
                        "gpu_memcpy",
                        "gpu_memset",
                        "cuda_runtime",
                        "cuda_runtime",
                        "Kernel",
                    ),
                    *(
                        "cpu_op",
                        "cpu_op",
                        "user_annotation",
                        "python_function",
                        "ac2g",
                        "kernels",
                        "cuda_driver",
                    ),
                ]
            )
        ),
        "name": draw(NAMES),
        "ts": 1.5,
        "dur": 2,
        "args": draw(st.dictionaries(NAMES | st.just("Input Dims"), NESTED, max_size=3)),
    }
    arguments = json.dumps(event["args"], **draw(LAYOUTS))
    name = json.dumps(event["name"], ensure_ascii=draw(st.booleans()))
    head = f'"ph": "{event["ph"]}", "cat": "{event["cat"]}", "name": {name}'
    if draw(st.integers(0, 9)) == 9:  # another order
        head = f'"name": {name}, "ph": "{event["ph"]}", "cat": "{event["cat"]}"'
    return event, f'{{\n    {head},\n    "ts": 1.5, "dur": 2,\n    "args": {arguments}\n  }}'


def _text(events: list[str], between: str = ",\n  ") -> bytes:
    return (
        f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n  {between.join(events)}\n  ], "z": 1\n}}'.encode()
    )


def _batches(text: bytes, block: int) -> dict[Category, list[str]]:
    found: dict[Category, list[str]] = {}
    stream = EventStream(Plain(io.BytesIO(text)), path="t.json", block=block)
    for batch in stream:
        for category, events in batch.items():
            found.setdefault(category, []).extend(event.name for event in events)
    assert (stream.truncated, stream.odd_events) == ("", 0)
    return {category: sorted(names) for category, names in found.items()}


def _wanted(events: list[Event]) -> dict[Category, list[str]]:
    found: dict[Category, list[str]] = {}
    for event in events:
        category = CATEGORIES.get(event["cat"].lower())
        if category is not None and event["ph"] == "X":
            found.setdefault(category, []).append(event["name"])
    return {category: sorted(names) for category, names in found.items()}


def _optional(category: Category, name: str) -> bool:
    """Whether an event may be left out: nothing is asked of it."""
    if category is Category.OP:
        return not name.startswith(LABELS_AMONG_OPS)
    return category is Category.LAUNCH and name.startswith(IDLE)


@given(events=st.lists(laid_out(), min_size=1, max_size=12), block=st.integers(200, 4000))
def test_everything_wanted_is_found_and_nothing_else(events: list[tuple[Event, str]], block: int) -> None:
    found = _batches(_text([text for _, text in events]), block)
    wanted = _wanted([event for event, _ in events])
    for category in Category:
        left, there = found.get(category, []), wanted.get(category, [])
        for name in left:
            there.remove(name)
        assert all(_optional(category, name) for name in there), (category, there)


def test_operators_that_record_shapes_are_all_kept() -> None:
    plain = (
        '{\n    "ph": "X", "cat": "cpu_op", "name": "aten::mm",\n    "ts": 1, "args": {\n      %s\n    }\n  }'
    )
    events = [plain % '"Ev Idx": 1'] * 40 + [plain % '"Input Dims": [[1]]'] * 40
    assert len(_batches(_text(events), 1 << 13)[Category.OP]) >= 40
    assert len(_batches(_text(events[::-1]), 1 << 13)[Category.OP]) == 80
    assert len(_batches(_text(events[:40] * 2), 1 << 13)[Category.OP]) < 80


@pytest.mark.parametrize(
    "inside",
    [
        '[\n  {\n    "ph": "X", "cat": "kernel", "name": "false"\n  },\n  {\n    "ph": "X"\n  }]',
        '[{"a": 1},\n  {\n    "ph": "X", "cat": "kernel", "name": "false"}]',
        '[1,\n  {\n    "ph": "X", "cat": "kernel", "name": "false"\n  }]',
        '[[], {"a": 1},\n  {\n    "ph": "X"}]',
    ],
)
def test_objects_in_arrays_inside_an_event_are_not_taken_for_events(inside: str) -> None:
    event = '{\n    "ph": "X", "cat": "cpu_op", "name": "aten::mm",\n    "args": {\n      "x": %s\n    }\n  }'
    text = _text([event % inside] * 9 + [event % "1"])
    assert Category.KERNEL not in _batches(text, 1 << 16)
    assert Sifter()(b"[" + b",\n  ".join([(event % inside).encode()] * 9)) is None


@pytest.mark.parametrize("between", [", ", ",", ",\n", ",\n    ", " ,\n  ", ",\r\n  "])
def test_another_layout_is_left_to_the_parser(between: str) -> None:
    events = [f'{{\n    "ph": "X", "cat": "kernel", "name": "{number}"\n  }}' for number in range(9)]
    assert Sifter()(b"[" + between.join(events).encode()) is None
    assert len(_batches(_text(events, between), 1 << 12)[Category.KERNEL]) == 9


@pytest.mark.parametrize("text", [b"[", b"[{", b"[{},{", b"[{},{}" + b"},\n  {" * 40, b"[]", b"[1, {}", b"{"])
def test_what_begins_too_soon_is_left_to_the_parser(text: bytes) -> None:
    assert Sifter()(text) is None


def test_what_is_laid_out_as_kineto_does_is_sifted() -> None:
    kernel = '{\n    "ph": "X", "cat": "kernel", "name": "%s"\n  }'
    arrow = '{\n    "ph": "f", "id": 1, "pid": 0,\n    "cat": "ac2g", "name": "ac2g"\n  }'
    array = b"[\n  " + b",\n  ".join(
        each.encode() for each in (arrow, kernel % "a", arrow, kernel % "b{", arrow)
    )
    sifted = Sifter()(array)
    assert sifted is not None
    found, last = sifted
    assert array[last:] == arrow.encode()
    assert [event["name"] for event in json.loads(found[Category.KERNEL])] == ["a", "b{"]
    assert [event["name"] for event in json.loads(found[None])] == [
        "ac2g"
    ]  # the first, of which nothing is told


def test_an_escaped_label_is_kept() -> None:
    operator = '{\n    "ph": "X", "cat": "cpu_op", "name": "%s",\n    "ts": 1, "dur": 1\n  }'
    events = [operator % name for name in ("aten::mm", "\\u006eccl:all_reduce", "aten::mm")] * 3
    assert "nccl:all_reduce" in _batches(_text(events), 1 << 12)[Category.OP]
