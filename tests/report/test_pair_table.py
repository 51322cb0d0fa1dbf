"""The table of pairs by strategies: whole at any width, nothing cut, every strategy once."""

import io

import pytest
from rich.console import Console

from conccl.bench.characterize import strategies_of
from conccl.bench.results import Characterization
from conccl.bench.sweep import Sweep, Variation
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device
from conccl.report.characterization import render_characterization

ALL = [
    "serial", "baseline", "prioritized", "partitioned", "prioritized_partitioned", "ce", "ce_trimmed",
    "nccl_zero", "policy", "partitioned:16", "chunked:4",
]  # fmt: skip
PAIRS = tuple(
    Pair(
        compute=Gemm(m=m, n=28672, k=16384),
        communication=Collective(kind=CollectiveKind.REDUCE_SCATTER, nbytes=1300 << 20, ranks=8),
    )
    for m in (1024, 16384)
)


def found(names=ALL) -> Characterization:
    sweep = Sweep(executor="sim", gpus=8, strategies=strategies_of(names))
    return sweep.run(Variation(device=load_device("h200-sxm")), PAIRS)


def printed(characterization: Characterization, width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(render_characterization(characterization))
    return text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_nothing_is_cut_and_every_figure_is_there(width):
    characterization = found()
    text = printed(characterization, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for pair in characterization.pairs:
        for name, result in pair.strategies.items():
            if name != "serial" and result.overlap is not None:
                assert f"{result.overlap.speedup:.2f}x" in text
    assert "16384x28672x16384" in text
    assert "reduce_scatter" in text
    assert "The policy chose" in text
    assert "nccl_zero is not possible" in " ".join(text.split())


def test_seven_strategies_stand_side_by_side_at_80_columns():
    text = printed(found(ALL[:7]), 80)
    assert text.count("median speedup") == len({p.pair_class for p in found().pairs}) + 1


def test_serial_is_shown_where_it_is_all_that_there_is():
    assert "serial" in printed(found(["serial"]), 80)


def test_more_than_ideal_is_explained():
    assert "faster alone than the library" in printed(found(["ce"]), 80)
    (pair, _) = found(["ce"]).pairs
    result = pair.strategies["ce"]
    assert result.overlap.fraction_of_ideal > 1
    assert result.communication_ns < result.overlap.communication_ns
