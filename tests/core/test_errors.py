import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from conccl.core import errors
from conccl.core.errors import (
    ConcclError,
    DisagreementError,
    ExecutionError,
    InputError,
    MissingExtraError,
    OutputError,
    PeerLostError,
    PlanError,
    StoreError,
    TraceError,
    UnknownNameError,
    WaitTimeoutError,
)

MADE = [
    ConcclError("one"),
    InputError("two"),
    TraceError(path="t.json", problem="it is empty", remedy="Record it again.", place="byte 0"),
    UnknownNameError(kind="device", name="h200", known=("h200-sxm", "h100-sxm")),
    PlanError("three"),
    OutputError("four"),
    MissingExtraError(module="torch", extra="torch"),
    ExecutionError("five"),
    WaitTimeoutError("six"),
    PeerLostError("eight"),
    DisagreementError("nine"),
    StoreError("seven"),
]


def _all() -> list[type]:
    members = inspect.getmembers(errors, inspect.isclass)
    return [kind for _, kind in members if issubclass(kind, ConcclError)]


def test_every_exception_is_tried_here():
    assert {type(one) for one in MADE} == set(_all())


@pytest.mark.parametrize("one", MADE, ids=lambda one: type(one).__name__)
def test_an_exception_survives_pickling_with_all_it_says(one: ConcclError):
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is type(one)
    assert str(again) == str(one)
    assert vars(again) == vars(one)


def test_exceptions_come_back_from_worker_processes():
    """What a pool of processes does: a message that cannot be unpickled would hang or break the pool."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for one in (MADE[2], MADE[3], MADE[6]):
            code = f"import pickle; raise pickle.loads({pickle.dumps(one)!r})"
            with pytest.raises(type(one)) as caught:
                pool.submit(exec, code, {}).result(timeout=60)
            assert str(caught.value) == str(one)


def test_the_tree_in_the_docstring_is_the_tree():
    drawn = [line for line in errors.__doc__.splitlines() if "Error " in line and not line.endswith(".")]
    names = [line.replace("│", " ").strip(" ├└─").split()[0] for line in drawn]
    assert set(names) == {kind.__name__ for kind in _all()}
    assert len(names) == len(set(names))
    stack: list[tuple[int, str]] = []
    for line, name in zip(drawn, names, strict=True):
        depth = line.index(name)
        while stack and stack[-1][0] >= depth:
            stack.pop()
        parent = stack[-1][1] if stack else "Exception"
        assert getattr(errors, name).__bases__[0].__name__ == parent
        stack.append((depth, name))


def test_exit_codes():
    codes = {type(one): one.exit_code for one in MADE}
    bad_input = {kind for kind, code in codes.items() if code == 2}
    assert all(issubclass(kind, (InputError, MissingExtraError, StoreError)) for kind in bad_input)
    assert {InputError, TraceError, PlanError, StoreError, MissingExtraError} <= bad_input
    assert codes[ExecutionError] == 1


def test_messages_say_what_came_what_is_allowed_and_what_to_do():
    assert str(MADE[2]) == "t.json (byte 0): it is empty. Record it again."
    assert str(MADE[3]) == "unknown device 'h200'. Did you mean h200-sxm or h100-sxm?"
    assert "pip install 'conccl[torch]'" in str(MADE[6])
    far = UnknownNameError(kind="device", name="zzz", known=("b", "a"))
    assert str(far) == "unknown device 'zzz'. Known: a, b."
