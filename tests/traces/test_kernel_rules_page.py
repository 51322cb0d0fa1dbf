"""The rules that the page shows are rules that work."""

from __future__ import annotations

import re
from pathlib import Path

from conccl.core.timeline import Activity
from conccl.traces.classify import classify
from conccl.traces.rules import Effect, RowKind, load_rules

PAGE = Path(__file__).parents[2] / "docs" / "kernel-rules.md"


def test_the_page_s_rules_work(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.toml").write_text(example)
    rules = load_rules(tmp_path / "mine.toml")
    names = ["void Tree_Reduce_Push<8>()", "ring_gemm_bf16", "Memcpy DtoH (Device -> Pinned)"]
    kinds = [RowKind.KERNEL, RowKind.KERNEL, RowKind.MEMCPY]
    classes = classify(names, kinds, rules=rules)
    assert [rules.ids[rule] for rule in classes.rule] == ["my-all-reduce", "my-fused-gemm", "my-offload"]
    assert classes.activity.tolist() == [Activity.COMMUNICATION, Activity.FUSED, Activity.COMMUNICATION]


def test_the_page_names_every_activity() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{effect}`" in text for effect in Effect)
    assert all(f"`{kind}`" in text for kind in RowKind)
