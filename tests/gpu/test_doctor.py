"""The doctor without a GPU: host files, settings, packages, and probes that fault, hang or lie."""

import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.records import to_json_value
from conccl.gpu import doctor
from conccl.gpu.doctor import PROBES, examine, stages
from conccl.gpu.findings import Finding, State
from conccl.gpu.host import host_findings
from conccl.gpu.packages import package_findings
from conccl.gpu.probes.clocks import reasons
from conccl.gpu.probing import MARK, probe_command, probed
from conccl.gpu.settings import SETTINGS, setting_findings


def by_name(findings) -> dict[str, Finding]:
    return {one.name: one for one in findings}


@pytest.fixture
def machine(tmp_path):
    """A host with two NUMA nodes, a driver and one GPU."""
    for path, text in {
        "proc/cpuinfo": "model name\t: Made CPU 3000\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:   2097152 kB\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Fri\n",
        "dev/nvidia0": "",
        "sys/devices/system/node/node0/x": "",
        "sys/devices/system/node/node1/x": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "dev/shm").mkdir()
    return tmp_path


def test_a_host_is_read_from_its_files(machine):
    found = by_name(host_findings(root=machine))
    assert "Made CPU 3000" in found["processor"].value
    assert found["NUMA nodes"].value == "2"
    assert "numactl" in found["NUMA nodes"].advice
    assert found["memory available"].value == "2 GiB"
    assert (found["NVIDIA driver"].state, found["NVIDIA driver"].value) == (
        State.OK,
        "580.95.05, 1 device files",
    )
    assert found["shared memory"].state in (State.OK, State.WARNING)


def test_without_a_driver_it_says_what_still_works(tmp_path):
    found = by_name(host_findings(root=tmp_path))
    assert found["NVIDIA driver"].state is State.MISSING
    assert "analyze" in found["NVIDIA driver"].advice
    assert found["shared memory"].state is State.MISSING
    assert found["memory available"].value == "unknown"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    assert "AMD" in by_name(host_findings(root=tmp_path))["NVIDIA driver"].advice


def test_a_driver_without_a_device_is_a_container_that_was_not_given_one(machine):
    (machine / "dev/nvidia0").unlink()
    found = by_name(host_findings(root=machine))["NVIDIA driver"]
    assert found.state is State.WARNING
    assert "--gpus all" in found.advice


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_every_setting_that_kills_overlap_is_found_with_its_reason(setting):
    harmful = next(value for value in ("1", "0", "Ring") if setting.harms(value))
    (found,) = (one for one in setting_findings({setting.name: harmful}) if one.name == setting.name)
    assert found.state is State.WARNING
    assert found.value == harmful
    assert len(found.evidence) > 40
    assert found.advice


def test_harmless_values_are_no_warnings():
    found = list(setting_findings({"CUDA_DEVICE_MAX_CONNECTIONS": "8", "CUDA_LAUNCH_BLOCKING": "0"}))
    assert [one.state for one in found] == [State.OK]
    told = by_name(setting_findings({"CUDA_VISIBLE_DEVICES": "1"}))
    assert told["CUDA_VISIBLE_DEVICES"].state is State.INFO


def test_packages_that_are_missing_name_the_command():
    def version_of(name):
        if name == "torch":
            return "2.13.0+cpu"
        raise importlib.metadata.PackageNotFoundError(name)

    found = by_name(package_findings(version_of))
    assert found["torch"].value == "2.13.0+cpu"
    assert found["torch build"].state is State.WARNING
    assert "pip install 'conccl[gpu]'" in found["triton"].advice


def script(code: str):
    return lambda _name: (sys.executable, "-c", code)


def test_what_a_probe_prints_becomes_findings_whatever_stands_around_it():
    one = Finding(group="g", name="n", state=State.OK, value="v")
    line = MARK + json.dumps([to_json_value(one)])
    assert list(probed(["x"], command=script(f"print('noise'); print({line!r}); print('more')"))) == [one]


@pytest.mark.parametrize(
    ("code", "state", "says"),
    [
        ("import time; time.sleep(60)", State.HUNG, "did not end within"),
        ("import os; os.abort()", State.FAILED, "signal 6"),
        ("raise SystemExit(3)", State.FAILED, "code 3"),
        ("print('nothing')", State.FAILED, "code 0"),
        (f"print('{MARK}[1]')", State.FAILED, "unreadable"),
        (f"print('{MARK}nonsense')", State.FAILED, "unreadable"),
    ],
)
def test_a_probe_that_hangs_or_faults_is_a_line_and_the_next_one_runs(code, state, says):
    found = list(probed(["first", "second"], seconds=2.0, command=script(code)))
    assert [one.state for one in found] == [state, state]
    assert says in found[0].value


def test_the_last_message_of_a_failed_probe_is_its_evidence():
    (found,) = probed(["x"], command=script("raise ValueError('no such device')"))
    assert found.evidence == "ValueError: no such device"


def test_with_a_gpu_every_probe_runs_and_a_hung_one_makes_it_broken(machine):
    asked, steps = [], []

    def command(name):
        asked.append(name)
        findings = [Finding(group=name, name="GPU 0", state=State.OK, value="Made GPU")]
        line = MARK + json.dumps([to_json_value(one) for one in findings])
        return (sys.executable, "-c", f"print({line!r})")

    found = examine(root=machine, environment={}, command=command, done=lambda: steps.append(1))
    assert tuple(asked) == PROBES
    assert len(steps) == stages()
    assert (found.has_gpu, found.device, found.is_broken) == (True, "Made GPU", False)
    assert examine(root=machine, environment={}, command=script("raise SystemExit(1)")).is_broken


def test_without_a_gpu_nothing_is_probed(tmp_path):
    found = examine(root=tmp_path, environment={}, command=script("raise SystemExit(1)"))
    assert (found.has_gpu, found.device, found.is_broken) == (False, None, False)


def test_the_command_prints_a_table_or_json(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "host_findings", lambda **_: host_findings(root=tmp_path))
    result = CliRunner().invoke(app, ["doctor", "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["schema"] == "conccl.doctor/1"
    assert (found["has_gpu"], found["device"]) == (False, None)
    assert found["findings"][0].keys() == {"group", "name", "state", "value", "evidence", "advice"}
    table = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    assert "No GPU here" in table.stdout


@pytest.mark.torch
@pytest.mark.parametrize("name", PROBES)
def test_every_probe_can_be_imported_and_has_its_entry(name):
    assert callable(importlib.import_module(f"conccl.gpu.probes.{name}").probe)
    assert probe_command(name)[-1] == name


def test_nothing_of_the_doctor_loads_pytorch():
    code = "import sys, conccl.gpu.doctor, conccl.report.doctor; print('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(doctor.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "False"


def test_reasons_for_low_clocks_are_named():
    assert reasons("0x0000000000000001") == []
    assert reasons("0x0000000000000044") == ["software power cap", "hardware thermal slowdown"]
    assert reasons("[N/A]") == []
