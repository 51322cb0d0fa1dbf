"""The table of rules: every example, every near miss, the user's rules, and evidence beside names."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from conccl.core.errors import InputError
from conccl.core.ops import CollectiveKind
from conccl.core.timeline import Activity
from conccl.traces import pattern_trial
from conccl.traces.classify import UNKNOWN, HostCopies, classify, collective_kind
from conccl.traces.rules import Effect, RowKind, Rule, Rules, built_in_rules, load_rules

RULES = built_in_rules()
EXAMPLES = [(rule, example) for rule in RULES.rules for example in rule.examples]
MISSES = [(rule, miss) for rule in RULES.rules for miss in rule.misses]


def _rule_of(name: str, kind: RowKind, rules: Rules = RULES) -> Rule | None:
    number = int(classify([name], [kind], rules=rules).rule[0])
    return None if number == UNKNOWN else rules.rules[number]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=[f"{r.id}:{e[:40]}" for r, e in EXAMPLES])
def test_each_example_is_its_rule_s(rule: Rule, example: str) -> None:
    for name in (example, example.upper(), example.lower()):
        assert _rule_of(name, rule.on) == rule


@pytest.mark.parametrize(("rule", "miss"), MISSES, ids=[f"{r.id}:{m[:40]}" for r, m in MISSES])
def test_each_near_miss_is_not(rule: Rule, miss: str) -> None:
    assert _rule_of(miss, rule.on) != rule


def test_the_table_is_in_order() -> None:
    assert len(set(RULES.ids)) == len(RULES.ids)
    for rule in RULES.rules:
        assert rule.examples, rule.id
        assert rule.source, rule.id
        # names are lowered once, so that capitals would never match
        assert rule.pattern == rule.pattern.lower(), rule.id


@pytest.mark.parametrize(
    ("name", "activity"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            Activity.COMMUNICATION,
        ),
        ("ncclkernel_allreduce_ring_ll_sum_float", Activity.COMMUNICATION),
        ("ncclSymkDevKernel_AllGather_LLMC", Activity.COMMUNICATION),
        ("void dpsk::ep::internode::combine<7168>(int)", Activity.COMMUNICATION),
        ("void dpsk::ep::internode::notify_dispatch(int)", Activity.COMMUNICATION),
        (
            "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>()",
            Activity.COMMUNICATION,
        ),
        ("conccl_gemm_reduce_scatter", Activity.FUSED),
        ("conccl_copy", Activity.COMMUNICATION),
        ("my_secret_kernel", Activity.COMPUTE),
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNN", Activity.COMPUTE),
        ("__amd_rocclr_copyBuffer.kd", Activity.COPY),
    ],
)
def test_activities(name: str, activity: Activity) -> None:
    assert classify([name], [RowKind.KERNEL], rules=RULES).activity.tolist() == [activity]


@pytest.mark.parametrize(
    ("name", "as_copy", "as_communication"),
    [
        ("Memcpy HtoD (Pinned -> Device)", Activity.COPY, Activity.COMMUNICATION),
        ("Memcpy DtoH (Device -> Pageable)", Activity.COPY, Activity.COMMUNICATION),
        ("Memcpy DtoD (Device -> Device)", Activity.COPY, Activity.COPY),
        ("Memcpy PtoP (Device -> Device)", Activity.COMMUNICATION, Activity.COMMUNICATION),
    ],
)
def test_host_copies_are_what_the_user_says(name: str, as_copy: Activity, as_communication: Activity) -> None:
    for host_copies, activity in ((HostCopies.COPY, as_copy), (HostCopies.COMMUNICATION, as_communication)):
        classes = classify([name], [RowKind.MEMCPY], rules=RULES, host_copies=host_copies)
        assert classes.activity.tolist() == [activity]


@pytest.mark.parametrize(
    ("kind", "example"),
    [(rule.kind, example) for rule in RULES.collectives for example in rule.examples],
)
def test_collectives_by_name(kind: CollectiveKind, example: str) -> None:
    assert collective_kind(example) is kind


@pytest.mark.parametrize(
    "name",
    ["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "Memcpy PtoP (Device -> Device)", "gemm"],
)
def test_names_that_do_not_say_which_collective(name: str) -> None:
    assert collective_kind(name) is None


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_rules_of_the_user_come_first(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        """
        [[rule]]
        id = "mine"
        activity = "communication"
        pattern = 'Secret_(Kernel|gemm)'
        [[rule]]
        id = "second"
        activity = "compute"
        pattern = 'secret'
        """,
    )
    rules = load_rules(path)
    names = ["my_secret_kernel", "secret_GEMM_nt", "secretly", "ncclDevKernel_AllGather", "other"]
    classes = classify(names, [RowKind.KERNEL] * 5, rules=rules)
    found = [None if number == UNKNOWN else rules.ids[number] for number in classes.rule]
    assert found == ["mine", "mine", "second", "nccl-kernel", None]
    assert classes.activity.tolist() == [1, 1, 0, 1, 0]
    on_copies = classify(["secret_kernel"], [RowKind.MEMCPY], rules=rules)
    assert rules.ids[on_copies.rule[0]] == "device-copy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "not TOML"),
        ("", "no rules"),
        ("version = 99", "version 99"),
        ("rule = 3", "must be tables"),
        ("rule = [3]", "must be a table"),
        ("[[rule]]\nid = 'a'\nactivity = 'compute'", "lacks 'pattern'"),
        ("[[rule]]\nid = 'a'\nactivity = 'dance'\npattern = 'x'", "must be one of compute, communication"),
        ("[[rule]]\nid = 3\nactivity = 'compute'\npattern = 'x'", "must be text"),
        ("[[rule]]\nid = 'a'\nactivity = 'compute'\npattern = '('", "no regular expression"),
        ("[[rule]]\nid = 'a'\nactivity = 'compute'\npattern = 'x'\nshade = 1", "has 'shade'"),
        ("[[rule]]\nid = 'a'\nactivity = 'compute'\npattern = 'x'\non = 'moon'", "must be one of kernel"),
        ("[[rule]]\nid = 'a'\nactivity = 'compute'\npattern = 'x'\nexamples = 'y'", "must be a list"),
    ],
)
def test_a_bad_rules_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(InputError, match=message) as raised:
        load_rules(path)
    assert str(path) in str(raised.value)


def test_a_rules_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_rules(tmp_path / "gone.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not TOML"):
        load_rules(path)


def test_a_runaway_pattern_is_stopped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_trial, "LIMIT_S", 0.5)
    runaway = Rule(id="slow", group="slow", activity=Effect.COMPUTE, pattern="(a+)+$", trusted=False)
    good = Rule(id="good", group="good", activity=Effect.COMPUTE, pattern="a", trusted=False)
    rules = Rules(rules=(good, runaway, *RULES.rules), collectives=RULES.collectives)
    began = time.monotonic()
    with pytest.raises(InputError, match="rule 'slow': the pattern '\\(a\\+\\)\\+\\$' did not finish"):
        classify(["a" * 50 + "!"], [RowKind.KERNEL], rules=rules)
    assert time.monotonic() - began < 10


def test_our_own_patterns_take_no_time_on_hostile_names() -> None:
    hostile = [
        "a" * 10_000,
        "reduce_scatter_" * 500,
        "gemm_" + "x_" * 3_000,
        "nccl" * 2_000,
        "(" * 5_000,
        "all_gather_" + "a" * 5_000 + "_gem",
        "::".join(["deep_ep"] * 1_000),
        "triton_" + "_".join(["fused"] * 1_000),
        " " * 10_000,
    ]
    began = time.process_time()
    classify(hostile, [RowKind.KERNEL] * len(hostile), rules=RULES)
    for name in hostile:
        collective_kind(name)
    assert time.process_time() - began < 2
