import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.core.ops import Collective, CollectiveKind, Gemm
from conccl.core.plan import Engine, Plan, Task
from conccl.core.records import from_json_value, to_json_value
from record_strategies import OP_KINDS, ops_of


@pytest.mark.parametrize("kind", OP_KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=20)
def test_every_kind_of_op_round_trips(kind: type, data: st.DataObject):
    op = data.draw(ops_of(kind))
    plan = Plan(tasks=(Task(id="t", op=op),))
    assert from_json_value(json.loads(json.dumps(to_json_value(plan))), Plan) == plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    engine: Engine
    share: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner | None
    by_engine: dict[Engine, int] = field(default_factory=dict)
    total: int = field(init=False, default=7)


def test_enums_mappings_none_and_derived_fields():
    record = Outer(inner=Inner(engine=Engine.SM), by_engine={Engine.COPY_ENGINE: 3})
    value = to_json_value(record)
    assert value == {
        "type": "Outer",
        "inner": {"type": "Inner", "engine": "sm", "share": 0.5},
        "by_engine": {"ce": 3},
    }
    assert from_json_value(value, Outer) == record
    assert from_json_value(to_json_value(Outer(inner=None)), Outer) == Outer(inner=None)


def test_an_integer_will_do_for_a_float_but_a_boolean_for_neither():
    assert from_json_value({"engine": "sm", "share": 1}, Inner).share == 1
    with pytest.raises(InputError, match=r"Inner\.share is True"):
        from_json_value({"engine": "sm", "share": True}, Inner)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"m": 1, "n": 2}, "Gemm: .*'k'"),
        ({"m": "1", "n": 2, "k": 3}, r"Gemm\.m is '1'; it must be int"),
        ({"m": 1, "n": 2, "k": 3, "j": 4}, "Gemm has no field 'j'; it has .*batch"),
        ({"m": 1, "n": 2, "k": 3, "dtype": "bf8"}, r"Gemm\.dtype is 'bf8'; it must be one of bf16"),
        ({"m": 0, "n": 2, "k": 3}, r"Gemm\.m is 0; it must be 1 or more"),
        ([1], r"Gemm is \[1\]; it must be dict"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_with_its_place(value: object, message: str):
    with pytest.raises(InputError, match=message):
        from_json_value(value, Gemm)


def test_the_place_of_a_mistake_deep_inside_is_named():
    value = to_json_value(
        Plan(tasks=(Task(id="t", op=Collective(kind=CollectiveKind.BARRIER, nbytes=0, ranks=2)),))
    )
    value["tasks"][0]["op"]["ranks"] = None
    with pytest.raises(InputError, match=r"Plan\.tasks\[0\]\.op\.ranks is None"):
        from_json_value(value, Plan)
    value["tasks"][0]["op"] = {"type": "Teleport"}
    with pytest.raises(InputError, match="'Teleport'; it must be one of Gemm"):
        from_json_value(value, Plan)
