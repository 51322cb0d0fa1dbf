"""What ranks do in the tests of fused operators: the same calls by every way, beside a float64 reference."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import conccl
from conccl.integrations.fused import functions as fused

WAYS = ("serial", "chunked:2", "chunked:5:shrinking", "chunked:1:staggered", "chunked:3:staggered", "auto")
SHAPES = ((1, 1, 1), (7, 5, 3), (64, 33, 17), (130, 24, 65), (256, 16, 8))
"""m, n, k: odd ones, fewer rows than ranks, more than a tile of rows."""
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
"""Of the largest value: a few roundings of the sums on their way."""


def start(rank, count, folder, backend, timeout_s=30):
    conccl.register_backend()
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/store-{backend}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=timeout_s),
    )


def matrices(seed, m, n, k, count, dtype):
    """Every rank's x, weight and bias, the same on all ranks."""
    source = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.randn(*size, generator=source, dtype=torch.float64).to(dtype)

    return (
        [draw(m, k) for _ in range(count)],
        [draw(n, k) for _ in range(count)],
        draw(n),
    )


def block(rows, count, rank):
    """Bounds of a rank's rows, as torch.chunk cuts them."""
    size = -(-rows // count)
    return min(rows, rank * size), min(rows, (rank + 1) * size)


def poison():
    """Freed memory that the next buffers come from is full of what would be noticed."""
    for size in (64, 1024, 16384):
        torch.full((size,), float("nan"))


def close(got, wanted, dtype):
    assert got.dtype == dtype
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    if got.numel():
        error = (got.double() - wanted).abs().max() / max(1.0, wanted.abs().max().item())
        assert error <= TOLERANCE[dtype], error.item()


def expected(xs, ws, bias, rank, act):
    """What each operator gives on a rank, in float64."""
    count = len(xs)
    x64, w64, b64 = [one.double() for one in xs], [one.double() for one in ws], bias.double()
    products = [x @ w.t() for x, w in zip(x64, w64, strict=True)]
    total = sum(products)
    lo, hi = block(len(xs[0]), count, rank)
    return {
        "gemm_reduce_scatter": act(total[lo:hi] + b64),
        "gemm_all_reduce": act(total + b64),
        "gemm_all_to_all": act(torch.cat([one[lo:hi] for one in products]) + b64),
        "all_gather_gemm": act(x64[0] @ w64[rank].t() + b64),
        "replicated_gemm": act(x64[0] @ w64[rank].t() + b64),
    }


def calls(xs, ws, bias, rank, way, activation):
    """What each operator gave; all_gather_gemm gathers the blocks of rank 0's matrix."""
    more = {"way": way, "activation": activation}
    lo, hi = block(len(xs[0]), len(xs), rank)
    plain = (xs[rank], ws[rank], bias)
    together = way.replace(":staggered", "").replace("chunked:1", "chunked:2")
    return {
        "gemm_reduce_scatter": fused.gemm_reduce_scatter(*plain, **more),
        "gemm_all_reduce": fused.gemm_all_reduce(*plain, **{**more, "way": together}),
        "gemm_all_to_all": fused.gemm_all_to_all(*plain, **more),
        "all_gather_gemm": fused.all_gather_gemm(xs[0][lo:hi], ws[rank], bias, rows=len(xs[0]), **more),
        "replicated_gemm": fused.replicated_gemm(xs[0], ws[rank], bias, **more),
    }


def results(rank, count, folder, backend, dtypes):
    """Every operator, way, shape and dtype; how many results were compared."""
    start(rank, count, folder, backend)
    compared = 0
    for dtype in dtypes:
        for index, (m, n, k) in enumerate(SHAPES):
            xs, ws, bias = matrices(index, m, n, k, count, dtype)
            activation = ("none", "relu", "gelu", "silu", "gelu_tanh")[index]
            act = fused.ACTIVATIONS[activation]
            wanted = expected(xs, ws, bias, rank, act)
            for way in WAYS:
                poison()
                for call, got in calls(xs, ws, bias, rank, way, activation).items():
                    try:
                        close(got, wanted[call], dtype)
                    except AssertionError as error:
                        raise AssertionError(f"{call} {way} {m}x{n}x{k} {dtype}: {error}") from error
                    compared += 1
    dist.destroy_process_group()
    return compared


def repeated(rank, count, folder, backend, repeats):
    """Random shapes and ways with every rank held up at random; how many results were compared."""
    start(rank, count, folder, backend)
    shared, own = random.Random(5), random.Random(rank)
    compared = 0
    for repeat in range(repeats):
        m, n, k = (shared.randint(1, 40) for _ in range(3))
        way = shared.choice(WAYS)
        xs, ws, bias = matrices(repeat, m, n, k, count, torch.float32)
        wanted = expected(xs, ws, bias, rank, lambda x: x)
        poison()
        if own.random() < 0.3:
            time.sleep(own.random() * 2e-3)
        for call, got in calls(xs, ws, bias, rank, way, "none").items():
            close(got, wanted[call], torch.float32)
            compared += 1
    dist.destroy_process_group()
    return compared


class Sum(torch.autograd.Function):
    """The unfused reference's collective: gather every rank's tensor; gradients go back to their rank."""

    @staticmethod
    def forward(ctx, x, count, rank):
        ctx.rank, ctx.count = rank, count
        parts = [torch.empty_like(x) for _ in range(count)]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient[ctx.rank], None, None


def unfused(xs, ws, bias, rank, call, act):
    """The operator from plain PyTorch ops, with the gradient of the sum of all ranks' losses."""
    count = len(xs)
    x, w = xs[rank], ws[rank]
    lo, hi = block(len(xs[0]), count, rank)
    if call == "gemm_reduce_scatter":
        return act(Sum.apply(x @ w.t(), count, rank).sum(0)[lo:hi] + bias)
    if call == "gemm_all_to_all":
        return act(Sum.apply(x @ w.t() + bias, count, rank)[:, lo:hi].flatten(0, 1))
    return act(Sum.apply(x, count, rank).flatten(0, 1) @ w.t() + bias)


def gradients(rank, count, folder, backend):
    """Gradients of every operator by every way beside those of plain ops; how many were compared."""
    start(rank, count, folder, backend)
    compared = 0
    m, n, k = 4 * count, 5, 3
    for way in ("serial", "chunked:3", "chunked:2:shrinking:staggered"):
        for call in ("gemm_reduce_scatter", "gemm_all_to_all", "all_gather_gemm"):
            for activation in ("none", "gelu"):
                xs, ws, bias = matrices(compared, m, n, k, count, torch.float64)
                act = fused.ACTIVATIONS[activation]
                found = []
                for run in ("fused", "plain"):
                    given = [one.clone().requires_grad_() for one in (xs[rank], ws[rank], bias)]
                    if run == "fused":
                        out = getattr(fused, call)(*given, way=way, activation=activation)
                    else:
                        mine = [given[0] if r == rank else one for r, one in enumerate(xs)]
                        theirs = [given[1] if r == rank else one for r, one in enumerate(ws)]
                        out = unfused(mine, theirs, given[2], rank, call, act)
                    weights = torch.linspace(1, 2, out.numel(), dtype=out.dtype).view_as(out) + rank
                    (out * weights).sum().backward()
                    found.append([out.detach(), *(one.grad for one in given)])
                for got, wanted in zip(*found, strict=True):
                    close(got, wanted, torch.float64)
                    compared += 1
    dist.destroy_process_group()
    return compared


def checked_gradients(rank, count, folder):
    """gradcheck in float64 of operators whose ranks' outputs each depend on this rank's input only once.

    All ranks change their inputs alike (gradcheck's steps are the same everywhere), so what is checked is the
    gradient with respect to a change of all of them: of a sum over ranks for the replicated operators.
    """
    start(rank, count, folder, "conccl")
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    w = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    b = torch.randn(2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for one in (x, w, b):
        one.requires_grad_()
    for way in ("serial", "chunked:2"):
        for activation in ("none", "silu"):
            for call in (fused.gemm_reduce_scatter, fused.gemm_all_reduce, fused.gemm_all_to_all,
                         fused.all_gather_gemm, fused.replicated_gemm):  # fmt: skip
                assert torch.autograd.gradcheck(
                    lambda x, w, b, call=call, way=way, activation=activation: call(
                        x, w, b, way=way, activation=activation
                    ),
                    (x, w, b),
                )
    dist.destroy_process_group()


def operators_are_sound(rank, count, folder):
    """torch.library.opcheck of every op: schema, fake results, autograd, tracing with dynamic shapes."""
    start(rank, count, folder, "conccl")
    name = dist.group.WORLD.group_name
    x, w, b = torch.randn(6, 4), torch.randn(5, 4), torch.randn(5)
    for one in (x, w, b):
        one.requires_grad_()
    ops, way = torch.ops.conccl, "chunked:2"
    for op in (ops.gemm_reduce_scatter, ops.gemm_all_reduce, ops.gemm_all_to_all, ops.replicated_gemm):
        torch.library.opcheck(op, (x, w, b, "none", way, name))
    torch.library.opcheck(ops.gemm_reduce_scatter, (x, w, None, "none", "serial", name))
    torch.library.opcheck(ops.all_gather_gemm, (x, w, b, "none", 6 * count, way, name))
    torch.library.opcheck(ops.gather_rows, (x.detach(), 6 * count, name))
    torch.library.opcheck(ops.return_rows, (x.detach(), 6, name))
    torch.library.opcheck(ops.summed, (x.detach(), name))
    torch.library.opcheck(ops.replicated, (x, name))
    dist.destroy_process_group()
    return True


def _mlp(count, width, hidden, sequence_parallel, way, compiled=None):
    torch.manual_seed(7)
    whole = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)
    up = conccl.ColumnParallelLinear.split(
        whole[0], sequence_parallel=sequence_parallel, activation="gelu", way=way
    )
    down = conccl.RowParallelLinear.split(whole[1], sequence_parallel=sequence_parallel, way=way)
    return whole, torch.nn.Sequential(up, down)


def layers(rank, count, folder, backend):
    """A tensor-parallel MLP beside the whole one: outputs and every gradient, plain and compiled."""
    start(rank, count, folder, backend)
    compared = 0
    rows, width, hidden = 4 * count, 6, 5 * count
    for sequence_parallel in (False, True):
        for way in ("serial", "chunked:2", "auto"):
            (first, second), split = _mlp(count, width, hidden, sequence_parallel, way)
            whole = torch.randn(rows, 2, width, generator=torch.Generator().manual_seed(3))
            given = whole.chunk(count)[rank] if sequence_parallel else whole
            x, y = given.clone().requires_grad_(), whole.clone().requires_grad_()
            out, wanted = split(x), second(torch.nn.functional.gelu(first(y)))
            (out * out).sum().backward()
            (wanted * wanted).sum().backward()
            up, down = split
            mine = (lambda t: t.chunk(count)[rank]) if sequence_parallel else (lambda t: t)
            for got, expected_one in (
                (out, mine(wanted)),
                (x.grad, mine(y.grad)),
                (up.weight.grad, first.weight.grad.chunk(count)[rank]),
                (up.bias.grad, first.bias.grad.chunk(count)[rank]),
                (down.weight.grad, second.weight.grad.chunk(count, 1)[rank]),
                (down.bias.grad, second.bias.grad),
            ):
                torch.testing.assert_close(got, expected_one, rtol=1e-4, atol=1e-5)
                compared += 1
    dist.destroy_process_group()
    return compared


def compiled(rank, count, folder, backend):
    """torch.compile takes the layers and functions whole, and computes the same."""
    start(rank, count, folder, backend)
    for sequence_parallel in (False, True):
        _, split = _mlp(count, 6, 4 * count, sequence_parallel, "chunked:2")
        x = torch.randn(2 * count, 6, generator=torch.Generator().manual_seed(rank * sequence_parallel))
        fast = torch.compile(split, backend="aot_eager", fullgraph=True)
        found = []
        for run in (split, fast):
            split.zero_grad()
            given = x.clone().requires_grad_()
            out = run(given)
            out.square().sum().backward()
            found.append([out.detach(), given.grad, *(one.grad.clone() for one in split.parameters())])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)
    weight = torch.randn(3, 4)

    def both(x):
        group = dist.group.WORLD
        return fused.gemm_all_to_all(
            x, weight, activation="relu", way="serial", group=group
        ) + fused.all_gather_gemm(x[: len(x) // count], weight, way="serial")

    fast = torch.compile(both, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (2 * count, 6 * count):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x), both(x))
    dist.destroy_process_group()
    return True


def refused(rank, count, folder):
    """The message of every call that cannot be made, on one rank and where ranks differ."""
    start(rank, count, folder, "conccl")
    x, w, b = torch.randn(4, 3), torch.randn(5, 3), torch.randn(5)
    other = dist.new_group([1 - rank], backend="conccl") if count == 2 else None
    cases = {
        "k": (lambda: fused.gemm_reduce_scatter(x, torch.randn(5, 4))),
        "dtype": (lambda: fused.gemm_all_reduce(x, w.double())),
        "bias": (lambda: fused.gemm_all_to_all(x, w, torch.randn(4))),
        "int": (lambda: fused.all_gather_gemm(x.int(), w.int())),
        "vector": (lambda: fused.gemm_all_reduce(x[0], w)),
        "activation": (lambda: fused.gemm_all_reduce(x, w, activation="gelo")),
        "way": (lambda: fused.gemm_all_reduce(x, w, way="chunky:3")),
        "number": (lambda: fused.gemm_all_reduce(x, w, way="chunked:1")),
        "order": (lambda: fused.gemm_all_reduce(x, w, b, way="chunked:2:staggered")),
        "tracked": (lambda: fused.gemm_reduce_scatter(x, w, way="tracked:4")),
        "group": (lambda: fused.gemm_reduce_scatter(x, w, group="nobody")),
        "not a member": (lambda: fused.gemm_reduce_scatter(x, w, group=other)),
        "rows": (lambda: fused.all_gather_gemm(x, w, rows=20)),
        "first dimension": (lambda: fused.gemm_reduce_scatter(torch.randn(3, 2, 3), w)),
        "features": (lambda: conccl.RowParallelLinear(3, 4)),
        "m differs": (lambda: fused.gemm_reduce_scatter(torch.randn(4 + 2 * rank, 3), w)),
        "dtype differs": (
            lambda: fused.gemm_reduce_scatter(
                *(one.to([torch.float32, torch.float64][rank]) for one in (x, w))
            )
        ),
        "way differs": (lambda: fused.gemm_reduce_scatter(x, w, way=["serial", "chunked:2"][rank])),
        "call differs": (lambda: [fused.gemm_reduce_scatter, fused.gemm_all_reduce][rank](x, w)),
    }
    told = {}
    for name, call in cases.items():
        try:
            call()
            told[name] = "nothing was refused"
        except Exception as error:
            told[name] = f"{type(error).__name__}: {error}"
    fused.gemm_reduce_scatter(x, w)  # and the group goes on
    dist.destroy_process_group()
    return told


def left_alone(rank, count, folder, backend, how):
    """The last rank never comes, or dies in the middle; the others say what they were waiting for."""
    start(rank, count, folder, backend, timeout_s=1)
    x, w = torch.randn(32, 3), torch.randn(5, 3)
    fused.gemm_reduce_scatter(x, w, way="chunked:4")
    began = time.monotonic()
    if rank == count - 1:
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(4)
        return None
    try:
        fused.gemm_reduce_scatter(x, w, way="chunked:4")
    except Exception as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "it went on", 0.0


def on_gpus(rank, count, folder):
    """Every operator and way by NCCL."""
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/store-nccl", rank=rank, world_size=count, device_id=rank
    )
    for dtype in (torch.bfloat16, torch.float32):
        for index, (m, n, k) in enumerate(((2048, 1024, 512), (514, 333, 65), (4096, 512, 257))):
            xs, ws, bias = matrices(index, m, n, k, count, dtype)
            wanted = expected(xs, ws, bias, rank, torch.relu)
            here = [one.cuda() for one in xs], [one.cuda() for one in ws], bias.cuda()
            for way in (*WAYS, "tracked:4"):
                if way.startswith("tracked"):
                    plain = here[0][rank], here[1][rank], here[2]
                    found = {
                        "gemm_reduce_scatter": fused.gemm_reduce_scatter(*plain, way=way, activation="relu"),
                        "gemm_all_reduce": fused.gemm_all_reduce(*plain, way=way, activation="relu"),
                        "gemm_all_to_all": fused.gemm_all_to_all(*plain, way=way, activation="relu"),
                    }
                else:
                    found = calls(*here, rank, way, "relu")
                for call, got in found.items():
                    close(got.cpu(), wanted[call], dtype)
    dist.destroy_process_group()
    return True
