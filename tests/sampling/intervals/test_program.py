"""Programs that are found, that are not, and how runs end."""

from __future__ import annotations

from pathlib import Path

import pytest

from conccl.core.errors import InputError
from conccl.sampling.intervals.program import Child, find_program


def run(*command: str, stdin: str | None = None) -> str:
    program = find_program(command, stdin=stdin)
    with Child(program.argv, program=program, environment=program.environment()) as child:
        child.wait()
        return child.last_words()


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(InputError, match="'no-such-program' was not found"):
        find_program(["no-such-program"])


def test_no_program_at_all() -> None:
    with pytest.raises(InputError, match="Write it behind --"):
        find_program([])


def test_a_file_that_may_not_be_executed(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    with pytest.raises(InputError, match="may not be executed"):
        find_program([str(path)])


def test_input_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_program(["/bin/cat"], stdin=str(tmp_path / "absent"))


def test_a_script_is_run_by_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env sh\necho hi\n")
    script.chmod(0o755)
    argv = find_program([str(script), "x"]).argv
    assert Path(argv[0]).name in {"dash", "bash", "sh", "busybox"}
    assert argv[1:] == (str(script), "x")


def test_a_script_without_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(InputError, match="without an interpreter"):
        find_program([str(script)])


def test_it_reads_what_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("from a file")
    assert run("/bin/sh", "-c", "cat >&2", stdin=str(path)) == "from a file"


def test_failure_is_told_with_its_last_words() -> None:
    with pytest.raises(InputError, match=r"exit status 3\. It said: bad luck Only a run that succeeds"):
        run("/bin/sh", "-c", "echo bad luck >&2; exit 3")


def test_a_killed_program_is_told_by_its_signal() -> None:
    with pytest.raises(InputError, match="ended with signal SIGKILL"):
        run("/bin/sh", "-c", "kill -9 $$")


def test_runs_get_the_same_addresses_and_this_process_keeps_its_own() -> None:
    before = Path("/proc/self/personality").read_text()
    stacks = {run("/bin/sh", "-c", "grep stack /proc/self/maps >&2") for _ in range(3)}
    assert len(stacks) == 1
    assert Path("/proc/self/personality").read_text() == before


def test_leaving_early_ends_the_program() -> None:
    program = find_program(["/bin/sleep", "60"])
    with Child(program.argv, program=program, environment=program.environment()) as child:
        process = child.process
    assert process.returncode == -9


def test_the_fingerprint_tells_programs_and_their_input_apart(tmp_path: Path) -> None:
    one, other = find_program(["/bin/cat", "a"]), find_program(["/bin/cat", "b"])
    assert one.fingerprint() == find_program(["/bin/cat", "a"]).fingerprint() != other.fingerprint()
