"""Whatever the layout and the cuts, the events are those that a JSON parser finds in the whole text."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import TraceError
from conccl.traces import event_stream
from conccl.traces.event_stream import EventStream
from conccl.traces.events import Category
from conccl.traces.unpacking import Plain
from made_kineto import host_row, kernel, launch, text_of

NASTY_NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "}, {",
            '"}, {"',
            "a\\",
            '\\"}],"traceEvents":[{',
            "lambda()#3}::operator()",
            "]}",
            "}\n,\n{",
            "\ud7ff\U0001f600",
            "</script>",
        ]
    ),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | NASTY_NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY_NAMES, inner, max_size=3),
    max_leaves=6,
)
WITHOUT_CATEGORY = st.sampled_from(
    [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "python"}},
        {"ph": "i", "s": "t", "name": "[memory]", "ts": 1},
        {"ph": "M"},
        {"ph": "i", "s": "t", "cat": "kernel", "name": "instant", "args": {"ph": "M"}},
    ]
)
EVENTS = st.lists(
    WITHOUT_CATEGORY
    | st.builds(
        lambda cat, name, args, extra: {
            **extra,
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": 1.5,
            "dur": 2,
            "args": args,
        },
        st.sampled_from(
            ["kernel", "cpu_op", "ac2g", "user_annotation", "Kernel", "new category", "python_function"]
        ),
        NASTY_NAMES,
        st.dictionaries(NASTY_NAMES, JSON_VALUES, max_size=3),
        st.dictionaries(st.sampled_from(["id", "s", "x"]), JSON_VALUES, max_size=2),
    ),
    max_size=12,
)
TOP = st.dictionaries(st.sampled_from(["a", "distributedInfo", "traceName", "z"]), JSON_VALUES, max_size=3)


def _stream(text: bytes, block: int = 64) -> EventStream:
    return EventStream(Plain(io.BytesIO(text)), path="t.json", block=block)


def _names(stream: EventStream) -> list[str]:
    """Names of kernels, operators and labels, sorted within each category."""
    batches = list(stream)
    return [
        name
        for category in (Category.KERNEL, Category.OP, Category.LABEL)
        for name in sorted(event.name for batch in batches for event in batch.get(category, ()))
    ]


def _expected(events: list[dict[str, Any]]) -> list[str]:
    wanted = (("kernel",), ("cpu_op",), ("user_annotation",))
    return [
        name
        for kinds in wanted
        for name in sorted(
            event["name"] for event in events if event["ph"] == "X" and event["cat"].lower() in kinds
        )
    ]


@given(
    events=EVENTS,
    before=TOP,
    after=TOP,
    block=st.integers(1, 400),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
)
def test_events_do_not_depend_on_the_cuts(
    events: list[dict[str, Any]],
    before: dict[str, Any],
    after: dict[str, Any],
    block: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    document = {**before, "traceEvents": events, **{f"{key}_": value for key, value in after.items()}}
    stream = _stream(json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(), block)
    assert _names(stream) == _expected(events)
    assert (stream.truncated, stream.odd_events) == ("", 0)


@given(events=EVENTS, block=st.integers(1, 200), data=st.data())
def test_a_text_that_breaks_off_gives_the_events_before(
    events: list[dict[str, Any]], block: int, data: st.DataObject
) -> None:
    text = json.dumps({"traceEvents": events}).encode()
    start = text.index(b"[") + 1
    end = data.draw(st.integers(start, len(text) - 2))
    stream = _stream(text[:end], block)
    names = _names(stream)
    whole = [event for event in events if _ends_before(text, events, event, end)]
    assert names == _expected(whole)
    assert stream.truncated != ""


def _ends_before(text: bytes, events: list[dict[str, Any]], event: dict[str, Any], end: int) -> bool:
    """Whether the event is complete in the first bytes of the text."""
    index = next(number for number, other in enumerate(events) if other is event)
    upto = json.dumps({"traceEvents": events[: index + 1]}).encode()[:-2]
    return text.startswith(upto) and len(upto) <= end


def test_a_bare_array_is_a_trace() -> None:
    text = json.dumps([kernel("k", 1, 2), kernel("l", 3, 4)]).encode()
    assert _names(_stream(text)) == ["k", "l"]


@pytest.mark.parametrize("behind", [b"]", b" ]", b"]]]]", b"}", b",", b"x", b"]}]", b"\n]\n}", b"[]", b'"]"'])
@pytest.mark.parametrize("events", [b"", b'{"ph": "M"}', b'{"ph": 3}', b"3"])
@pytest.mark.parametrize("block", [1, 16, 1 << 16])
def test_whatever_stands_behind_the_events(behind: bytes, events: bytes, block: int) -> None:
    good = json.dumps(kernel("k", 1, 2)).encode()
    between = b"," + events if events else b""
    for start in (b"[", b'{"traceEvents": ['):
        assert _names(_stream(start + good + between + b"]" + behind, block)) == ["k"]


def test_metadata_before_and_behind_the_events() -> None:
    text = b'{"deviceProperties": [{"id": 0, "name": "X", "numSms": 7}], "traceEvents": [], '
    text += b'"distributedInfo": {"rank": 3, "world_size": 8}, "more": [{"a": 1}, {"b": 2}]}'
    stream = _stream(text)
    assert list(stream) == []
    assert (stream.metadata.rank, stream.metadata.world_size) == (3, 8)
    assert stream.metadata.devices["0"].sm_count == 7


def test_traceevents_inside_something_else_is_not_the_trace() -> None:
    inner = {"traceEvents": [kernel("wrong", 1, 2)]}
    text = json.dumps(
        {"note": '"traceEvents": [', "inner": inner, "traceEvents": [kernel("right", 1, 2)]}
    ).encode()
    assert _names(_stream(text)) == ["right"]


def test_events_that_are_none_are_left_out_and_counted() -> None:
    good = json.dumps(kernel("k", 1, 2)).encode()
    text = b'{"traceEvents": [' + b", ".join([good, b"[1, {}]", b'{"ph": tru}', good]) + b"]}"
    stream = _stream(text)
    assert _names(stream) == ["k", "k"]
    assert stream.odd_events == 2
    assert stream.first_odd_place == f"byte {text.index(b'[1, {')}"


def test_names_that_are_not_utf8_are_read() -> None:
    text = text_of([kernel("k1", 1, 2), kernel("bad?name", 1, 2), kernel("k2", 1, 2)]).replace(
        b"?", b"\xff\xfe"
    )
    assert _names(_stream(text)) == ["bad\ufffd\ufffdname", "k1", "k2"]


@pytest.mark.parametrize("surrogate", [rb"\ud800", rb"\udfff x"])
def test_lone_surrogates_become_printable(surrogate: bytes) -> None:
    text = text_of([kernel("a?", 1, 2)]).replace(b"?", surrogate)
    (name,) = _names(_stream(text))
    assert name.encode()


def test_nan_in_an_argument_does_not_lose_the_event() -> None:
    text = text_of([kernel("k", 1, 2, occupancy=float("nan"), other=float("-inf"))])
    assert _names(_stream(text)) == ["k"]


def test_nesting_of_any_depth_costs_one_event() -> None:
    deep = (
        b'{"ph": "X", "cat": "kernel", "name": "deep", "args": {"x": ' + b"[" * 10**6 + b"]" * 10**6 + b"}}"
    )
    good = json.dumps(kernel("k", 1, 2)).encode()
    stream = _stream(b'{"traceEvents": [' + b",".join([good, deep, good]) + b"]}", 1 << 16)
    assert _names(stream) == ["k", "k"]
    assert stream.odd_events == 1


def test_an_event_that_never_ends_ends_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "EVENT_LIMIT", 1 << 16)
    good = json.dumps(kernel("k", 1, 2)).encode()
    stream = _stream(b'{"traceEvents": [' + good + b',{"a":"' + b"x" * (1 << 20) + b'"}]}', 1 << 10)
    assert _names(stream) == ["k"]
    assert "malformed" in stream.truncated


def test_categories_are_learned_and_spelled_any_way() -> None:
    events = [
        kernel("a", 1, 2),
        {**kernel("b", 1, 2), "cat": "KERNEL"},
        {**kernel("c", 1, 2), "cat": "kernel2"},
    ]
    events += [{**kernel("d", 1, 2), "cat": f"strange {number}"} for number in range(100)]
    assert _names(_stream(text_of(events), 1 << 16)) == ["a", "b"]


def test_events_without_category_or_with_odd_fields_hide_no_others() -> None:
    events = [
        {"ph": "i", "name": "[memory]", "pid": "", "tid": [1], "ts": 1},
        kernel("k", 1, 2),
        {**kernel("l", 1, 2), "ph": 3},
        {**kernel("m", 1, 2), "args": "none"},
        {**kernel("n", 1, 2), "pid": {"a": 1}, "name": 7},
        {**host_row("cpu_op", "op", 1, 2), "args": None},
        {**launch(1, 2), "args": [1]},
    ]
    assert _names(_stream(text_of(events), 1 << 16)) == ["7", "k", "m", "op"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"no json", "not JSON"),
        (b"\x00\x01\x02", "not JSON"),
        (b'"text"', "not JSON"),
        (b"{}", "JSON without traceEvents"),
        (b'{"a": 1, "traceEvents": null}', "JSON without traceEvents"),
        (b'{"inner": {"traceEvents": []}}', "JSON without traceEvents"),
        (b'{"a": [1, 2', "truncated before its first event"),
        (b'{"a": tru', "truncated before its first event"),
        (b"{" * 10**6, "truncated before its first event"),
    ],
)
def test_what_is_no_trace(text: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as raised:
        list(_stream(text, 1 << 16))
    assert raised.value.path == "t.json"
    assert raised.value.place.startswith("byte ")


def test_much_json_without_events_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "EVENT_LIMIT", 1 << 12)
    source = io.BytesIO(b'{"a": [' + b"1," * (1 << 20))
    with pytest.raises(TraceError, match="no traceEvents within the first"):
        list(EventStream(Plain(source), path="t.json", block=1 << 10))
    assert source.tell() < 1 << 15


def test_blank_space_before_a_trace_costs_no_memory_and_has_an_end() -> None:
    text = text_of([kernel("k", 1, 1)])
    (batch,) = EventStream(Plain(io.BytesIO(b" " * (5 << 20) + text)), path="t.json")
    assert len(batch[Category.KERNEL]) == 1
    with pytest.raises(TraceError, match="not JSON"):
        list(EventStream(Plain(_Blank()), path="t.json"))


class _Blank(io.RawIOBase):
    def read(self, size: int = -1, /) -> bytes:
        return b" " * size
