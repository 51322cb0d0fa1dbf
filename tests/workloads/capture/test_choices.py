"""What CUDA runs where other devices run something else: attention, recurrence, norms, autocast."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from workloads.capture.made_steps import captured, names, recorded  # noqa: E402

pytestmark = pytest.mark.torch

CUDNN, FLASH, EFFICIENT = (
    f"_scaled_dot_product_{name}_attention" for name in ("cudnn", "flash", "efficient")
)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "mask", "name"),
    [
        (torch.bfloat16, 64, None, CUDNN),
        (torch.float16, 128, "bool", CUDNN),
        (torch.bfloat16, 36, None, FLASH),
        (torch.bfloat16, 160, None, FLASH),
        (torch.bfloat16, 160, "bool", EFFICIENT),
        (torch.float32, 64, None, EFFICIENT),
        (torch.float32, 64, "float", EFFICIENT),
        (torch.float64, 64, None, "bmm"),
        (torch.bfloat16, 64, "trained", "bmm"),
    ],
)
def test_attention_backend_by_type_size_and_mask(dtype, head_dim, mask, name):
    def run(_):
        q = torch.randn(2, 4, 32, head_dim, dtype=dtype, requires_grad=True)
        bias = {None: None, "bool": torch.ones(32, 32) > 0, "float": torch.zeros(32, 32, dtype=dtype)}.get(
            mask
        )
        if mask == "trained":
            bias = torch.zeros(32, 32, dtype=dtype, requires_grad=True)
        functional.scaled_dot_product_attention(q, q, q, bias).sum().backward()
        assert q.grad.shape == q.shape

    found = names(recorded(run)[0])
    assert name in found
    assert sum(backend in found for backend in (CUDNN, FLASH, EFFICIENT)) == (name != "bmm")
    if name != "bmm":
        assert f"{name}_backward" in found


def test_attention_obeys_the_backends_that_a_program_allows():
    def run(_):
        q = torch.randn(2, 4, 32, 64, dtype=torch.bfloat16)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            functional.scaled_dot_product_attention(q, q, q)

    assert FLASH in names(recorded(run)[0])


def test_recurrent_networks_are_one_library_call():
    def build():
        model = torch.nn.LSTM(32, 64, 2, batch_first=True, bidirectional=True)
        x = torch.randn(4, 10, 32)

        def step():
            out, (h, c) = model(x)
            assert out.shape == (4, 10, 128)
            assert h.shape == c.shape == (4, 4, 64)
            out.sum().backward()
            assert model.weight_hh_l1_reverse.grad.shape == (256, 64)

        return step

    step = captured(build)
    assert sum(call.kernel.name == "_cudnn_rnn" for call in step.kernels) == 1
    assert sum(call.kernel.name == "_cudnn_rnn_backward" for call in step.kernels) == 1


def test_packed_sequences_run_too():
    def run(_):
        model = torch.nn.GRU(8, 16)
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.randn(5, 3, 8), torch.tensor([5, 3, 2], device="cpu")
        )
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(model(packed)[0])
        return out.shape

    assert recorded(run)[1] == (5, 3, 16)


@pytest.mark.parametrize(
    ("cell", "name"), [("LSTMCell", "_thnn_fused_lstm_cell"), ("GRUCell", "_thnn_fused_gru_cell")]
)
def test_cells_are_two_products_and_a_fused_kernel(cell, name):
    def run(_):
        model = getattr(torch.nn, cell)(8, 16)
        out = model(torch.randn(4, 8))
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        assert model.weight_ih.grad is not None

    found = names(recorded(run)[0])
    assert found[name] == 1
    assert found["mm"] >= 2


@pytest.mark.parametrize(
    ("dtype", "weights", "name"),
    [
        (torch.float32, torch.float32, "cudnn_batch_norm"),
        (torch.float16, torch.float32, "cudnn_batch_norm"),
        (torch.bfloat16, torch.float32, "native_batch_norm"),
        (torch.float16, torch.float16, "native_batch_norm"),
    ],
)
def test_batch_norm_by_element_types(dtype, weights, name):
    def run(_):
        norm = torch.nn.BatchNorm2d(8).to(weights)
        norm(torch.randn(2, 8, 4, 4, dtype=dtype, requires_grad=True)).sum().backward()

    found = names(recorded(run)[0])
    assert name in found
    assert f"{name}_backward" in found


def test_rms_norm_is_one_kernel_with_a_gradient():
    def run(_):
        norm = torch.nn.RMSNorm(64)
        x = torch.randn(4, 64, requires_grad=True)
        norm(x).sum().backward()
        assert norm.weight.grad.shape == (64,)
        assert x.grad.shape == x.shape

    found = names(recorded(run)[0])
    assert found["_fused_rms_norm"] == 1
    assert found["_fused_rms_norm_backward"] == 2


def test_dropout_is_one_kernel_and_none_in_inference():
    def run(_):
        drop = torch.nn.Dropout(0.1)
        drop(torch.randn(4, 4))
        drop.eval()(torch.randn(4, 4))

    assert names(recorded(run)[0])["native_dropout"] == 1


def test_autocast_casts_as_on_cuda():
    def run(_):
        x, w = torch.randn(8, 16), torch.randn(4, 16, requires_grad=True)
        target = torch.zeros(8, dtype=torch.int64)
        with torch.autocast("cuda", torch.bfloat16):
            y = functional.linear(x, w)
            kinds = [y.dtype, functional.softmax(y, -1).dtype, torch.exp(y).dtype, (y + x[:, :4]).dtype]
            kinds += [functional.cross_entropy(y, target).dtype, functional.gelu(y).dtype, y.sum().dtype]
            functional.linear(x, w)
        return kinds

    low, full = torch.bfloat16, torch.float32
    step, kinds = recorded(run)
    assert kinds == [low, full, full, full, full, low, full]
    # x twice; w once, as autocast keeps the casts of weights; y for softmax and exp; the loss's logarithms
    assert names(step)["copy_"] == 2 + 1 + 2 + 1


def test_autocast_refuses_what_cuda_refuses():
    def run(_):
        x = torch.rand(4)
        with torch.autocast("cuda"):
            functional.binary_cross_entropy(x, x)

    with pytest.raises(RuntimeError, match="with_logits"):
        recorded(run)


def test_scaled_gradients_step_the_optimizer():
    def build():
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        x = torch.randn(4, 8)

        def step():
            with torch.autocast("cuda", torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        return step

    step = captured(build)
    found = names(step)
    assert found["_amp_foreach_non_finite_check_and_unscale_"] == 1
    assert found["_foreach_addcdiv_"] == 1, "an overflow was assumed and the step left out"
    assert step.warnings == ()
