from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from conccl.advise import workers
from conccl.advise.workers import Died, children_ahead, spread
from conccl.core.units import parse_size


def test_results_come_in_the_order_of_the_tasks() -> None:
    calls: list[None] = []
    found = spread(parse_size, ["1K", "2K", "3", "4M"], processes=2, done=lambda: calls.append(None))
    assert found == [1024, 2048, 3, 4 << 20]
    assert len(calls) == 4


def test_one_process_is_this_one() -> None:
    found = spread(_pid, [1, 2], processes=1)
    assert found == [os.getpid()] * 2


def _pid(_: int) -> int:
    return os.getpid()


def test_children_that_began_ahead_are_taken_and_the_rest_ends() -> None:
    with children_ahead(2, module="conccl.core.units"):
        begun = list(workers._ahead)
        assert spread(parse_size, ["1K", "2K"], processes=2) == [1024, 2048]
        assert len(workers._ahead) == 1
    assert workers._ahead == []
    assert all(process.poll() is not None for process in begun)


def test_a_child_that_cannot_begin_ahead_costs_nothing() -> None:
    with children_ahead(1, module="conccl.no_such_module"):
        assert spread(parse_size, ["1K", "2K"], processes=2) == [1024, 2048]


def test_no_tasks_give_no_results() -> None:
    assert spread(parse_size, [], processes=4) == []


def test_an_exception_ends_all() -> None:
    with pytest.raises(Exception, match="not a size"):
        spread(parse_size, ["1", "rubbish", "2", "3"], processes=3)


def test_a_child_that_dies_costs_its_task_only(tmp_path: Path) -> None:
    """The script's function kills every process but the main one."""
    (tmp_path / "deadly.py").write_text(
        textwrap.dedent(
            """
            import os, signal, time
            def deadly(task):
                if os.getpid() != int(os.environ["MAIN_PID"]):
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.4)
                return task
            """
        )
    )
    script = textwrap.dedent(
        """
        import os
        os.environ["MAIN_PID"] = str(os.getpid())
        from conccl.advise.workers import Died, spread
        from deadly import deadly
        found = spread(deadly, [1, 2, 3, 4], processes=2)
        died = [each for each in found if isinstance(each, Died)]
        assert died and all(each.exit_code == -9 for each in died), found
        assert [each for each in found if not isinstance(each, Died)], found
        print("unguarded script ran once")
        """
    )
    path = os.pathsep.join([str(tmp_path), *(entry for entry in sys.path if entry)])
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "unguarded script ran once\n"
    assert Died(exit_code=-signal.SIGKILL).exit_code == -9


def test_where_no_child_can_begin_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for executable in ("/bin/false", "/no/such/python", "", None):
        monkeypatch.setattr(sys, "executable", executable)
        with children_ahead(2, module=""):
            assert spread(_pid, [1, 2, 3], processes=3) == [os.getpid()] * 3


def test_where_no_thread_can_begin_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert spread(_pid, [1, 2, 3], processes=3) == [os.getpid()] * 3


def test_a_child_may_be_stopped_from_two_threads_at_once() -> None:
    """As where an interrupt ends the work while the child's own thread sees it die."""
    for _ in range(5):
        child = workers._Child(workers._Crew(function=_pid, tasks=[], done=lambda: None))
        child._process = workers._begin()
        threads = [threading.Thread(target=child.stop) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert child._process is None


def test_an_interrupt_that_reaches_children_too_leaves_them_to_their_parent() -> None:
    child = workers._begin()
    assert child.stdin is not None
    assert child.stdout is not None
    for size in ("1K", "2K"):
        workers._send(child.stdin, (parse_size, size))
        assert pickle.load(child.stdout) == parse_size(size)
        child.send_signal(signal.SIGINT)
    workers._end(child)
    assert child.returncode == -signal.SIGKILL
