"""Matmuls together in PyTorch: results, gradients, what is refused, graphs that are compiled."""

import pytest

torch = pytest.importorskip("torch")

import conccl  # noqa: E402
from conccl.core.errors import InputError  # noqa: E402
from conccl.core.measurement import Environment  # noqa: E402
from conccl.integrations.together import graphs, running  # noqa: E402
from conccl.integrations.together.layers import (  # noqa: E402
    adapter_matmuls,
    expert_matmuls,
    gate_matmuls,
    project_together,
)
from conccl.tune.gemms.library import Library  # noqa: E402
from conccl.tune.gemms.logic import FEATURES, Logic  # noqa: E402

pytestmark = pytest.mark.torch


def pairs(count=3, dtype=torch.float64, grad=False):
    return [
        (
            torch.randn(3 + i, 5, dtype=dtype, requires_grad=grad),
            torch.randn(5, 4 + i, dtype=dtype, requires_grad=grad),
        )
        for i in range(count)
    ]


def flat(some):
    return [one for pair in some for one in pair]


def together(*operands):
    return tuple(conccl.matmul_together(list(zip(operands[::2], operands[1::2], strict=True))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_products_are_those_of_the_operator(dtype):
    some = pairs(dtype=dtype)
    for (a, b), product in zip(some, conccl.matmul_together(some), strict=True):
        assert torch.equal(product, a @ b)


def test_outputs_are_written_where_they_shall_be():
    some = pairs()
    out = [torch.full((a.shape[0], b.shape[1]), torch.nan, dtype=a.dtype) for a, b in some]
    found = conccl.matmul_together(some, out=out)
    assert all(one is other for one, other in zip(found, out, strict=True))
    assert all(torch.equal(one, a @ b) for one, (a, b) in zip(out, some, strict=True))


def test_nothing_gives_nothing():
    assert conccl.matmul_together([]) == []


def test_empty_matrices():
    no_rows, no_depth = (torch.ones(0, 3), torch.ones(3, 2)), (torch.ones(2, 0), torch.ones(0, 2))
    product = conccl.matmul_together([no_rows, no_depth])
    assert product[0].shape == (0, 2)
    assert torch.equal(product[1], torch.zeros(2, 2))


def test_gradients_of_first_and_second_order():
    operands = flat(pairs(2, grad=True))
    assert torch.autograd.gradcheck(together, operands)
    assert torch.autograd.gradgradcheck(together, operands)


def test_operands_that_need_no_gradient_get_none():
    a, b = torch.randn(2, 3), torch.randn(3, 2, requires_grad=True)
    conccl.matmul_together([(a, b), (a, b)])[0].sum().backward()
    assert a.grad is None
    assert torch.allclose(b.grad, a.t() @ torch.ones(2, 2))


def test_autocast_casts_as_it_does_for_a_matmul():
    some = pairs(2, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = conccl.matmul_together(some)
        assert all(torch.equal(one, a @ b) for one, (a, b) in zip(found, some, strict=True))
    assert found[0].dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("some", "message"),
    [
        ([(torch.ones(2, 3), torch.ones(2, 3))], "does not fit"),
        ([(torch.ones(1, 2, 3), torch.ones(3, 3))], "give matrices"),
        (
            [(torch.ones(2, 3), torch.ones(3, 3)), (torch.ones(2, 3).half(), torch.ones(3, 3).half())],
            "element type",
        ),
        ([(torch.ones(2, 3), torch.ones(3, 3, device="meta"))], "on meta"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(some, message):
    with pytest.raises(InputError, match=message):
        conccl.matmul_together(some)


def test_outputs_that_overlap_are_refused():
    some = [(torch.ones(2, 2), torch.ones(2, 2))] * 2
    memory = torch.zeros(3, 2)
    with pytest.raises(InputError, match="share memory"):
        conccl.matmul_together(some, out=[memory[:2], memory[1:]])
    a = torch.ones(2, 2)
    with pytest.raises(InputError, match="operand of matmul 1"):
        conccl.matmul_together(
            [(torch.ones(2, 2), torch.ones(2, 2)), (a, torch.ones(2, 2))], out=[a, memory[:2]]
        )
    with pytest.raises(InputError, match="must be"):
        conccl.matmul_together(some[:1], out=[torch.zeros(2, 3)])
    with pytest.raises(InputError, match="one for each"):
        conccl.matmul_together(some, out=[memory[:2]])


def test_outputs_side_by_side_in_one_tensor_are_allowed():
    memory = torch.zeros(4, 2)
    some = [(torch.ones(2, 2), torch.ones(2, 2))] * 2
    conccl.matmul_together(some, out=[memory[:2], memory[2:]])
    assert torch.equal(memory, torch.full((4, 2), 2.0))


def test_outputs_take_no_products_that_need_gradients():
    a = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(InputError, match="no_grad"):
        conccl.matmul_together([(a, a)], out=[torch.zeros(2, 2)])


def test_a_queue_runs_what_it_collected():
    x, w = torch.randn(2, 7, 5), torch.randn(4, 5)
    bias = torch.randn(4)
    with conccl.GemmQueue() as queue:
        first = queue.linear(x, w, bias)
        second = queue.matmul(x, w.t())
        assert len(queue) == 2
        with pytest.raises(InputError, match="has not run yet"):
            _ = first.value
    assert torch.allclose(first.value, torch.nn.functional.linear(x, w, bias))
    assert torch.equal(second.value, x @ w.t())


def test_a_queue_refuses_matmuls_that_depend_on_each_other_until_it_is_flushed():
    x = torch.randn(3, 3)
    with conccl.GemmQueue() as queue:
        first = queue.matmul(x, x)
        with pytest.raises(InputError, match="depend on each other"):
            queue.matmul(first, x)
        queue.flush()
        second = queue.matmul(first, x)
    assert torch.allclose(second.value, x @ x @ x)


def test_a_queue_that_is_left_by_an_error_runs_nothing():
    queue = conccl.GemmQueue()
    product = queue.matmul(torch.ones(2, 2), torch.ones(2, 2))
    with pytest.raises(ZeroDivisionError), queue:
        _ = 1 / 0
    assert not product.is_ready


def test_projections_of_one_input():
    x = torch.randn(2, 3, 8)
    layers = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(8, 4)]
    found = project_together(x, layers)
    for one, layer in zip(found, layers, strict=True):
        assert torch.allclose(one, layer(x), atol=1e-6)
    sum(one.sum() for one in found).backward()
    assert all(layer.weight.grad is not None for layer in layers)


def test_experts_with_uneven_tokens_and_none():
    tokens, weights = torch.randn(6, 4, dtype=torch.float64), torch.randn(3, 5, 4, dtype=torch.float64)
    found = expert_matmuls(tokens, weights, [4, 0, 2])
    expected = torch.cat([tokens[:4] @ weights[0].t(), tokens[4:] @ weights[2].t()])
    assert torch.allclose(found, expected)
    assert expert_matmuls(tokens[:0], weights, [0, 0, 0]).shape == (0, 5)
    with pytest.raises(InputError, match="add up"):
        expert_matmuls(tokens, weights, [4, 0, 1])


def test_adapters_and_gates():
    x = [torch.randn(2, 8), torch.randn(3, 8)]
    down, up = [torch.randn(2, 8)] * 2, [torch.randn(6, 2)] * 2
    found = adapter_matmuls(x, down, up, scale=0.5)
    assert torch.allclose(found[1], 0.5 * x[1] @ down[1].t() @ up[1].t(), atol=1e-5)
    with pytest.raises(InputError, match="as many of each"):
        adapter_matmuls(x, down[:1], up)
    of_input, of_hidden = gate_matmuls(x[0], torch.ones(2, 4), torch.ones(16, 8), torch.ones(16, 4))
    assert torch.allclose(of_input, x[0] @ torch.ones(8, 16), atol=1e-5)
    assert torch.equal(of_hidden, torch.full((2, 16), 4.0))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16, bias=bias) for bias in (True, False, True))
        self.out = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.out(torch.relu(self.q(x)) * self.v(x)).sum() + self.k(x).square().sum()


def test_a_compiled_model_runs_its_independent_matmuls_together(monkeypatch):
    grouped = []
    together = graphs.group_matmuls
    monkeypatch.setattr(graphs, "group_matmuls", lambda module: grouped.append(together(module)))
    torch._dynamo.reset()
    model, x = Attention(), torch.randn(4, 7, 16)
    model(x).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    result = torch.compile(model, backend=graphs.together_backend)(x)
    result.backward()
    assert torch.equal(result, model(x))
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))
    assert grouped[0] == 1  # queries, keys and values; the output's matmul depends on them
    assert grouped[1] >= 1


def test_matmuls_that_depend_on_each_other_are_left_alone():
    traced = torch.fx.symbolic_trace(lambda a: torch.ops.aten.mm.default(torch.ops.aten.mm.default(a, a), a))
    assert graphs.group_matmuls(traced) == 0


def test_the_custom_op_is_what_pytorch_expects():
    a, b = [torch.randn(2, 3), torch.randn(4, 3)], [torch.randn(3, 2), torch.randn(3, 5)]
    torch.library.opcheck(graphs.matmuls, (a, b), test_utils=("test_schema", "test_faketensor"))


def test_a_library_of_another_device_is_refused(monkeypatch):
    environment = Environment(executor="sim", device="h200-sxm")
    logic = Logic(classes=(1,), weights=((0.0,) * len(FEATURES),), constants=(0.0,))
    library = Library(environment=environment, sms=132, logic=logic)
    gpu = torch.device("cuda", 0)
    for found, fits in (
        ((132, "NVIDIA H200"), True),
        ((132, "NVIDIA H100"), False),
        ((114, "NVIDIA H200"), False),
    ):
        monkeypatch.setattr(running, "_found", lambda _, found=found: found)
        if fits:
            running._require_made_for(library, gpu)
        else:
            with pytest.raises(InputError, match="made for h200-sxm"):
                running._require_made_for(library, gpu)
