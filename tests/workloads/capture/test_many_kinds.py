"""Code of many kinds goes through whole, every operator of it known to the table of kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from conccl.workloads.capture.target import capture_target  # noqa: E402
from conccl.workloads.captured import Modelled  # noqa: E402
from workloads.capture.made_steps import DEVICE, captured, names, recorded  # noqa: E402

pytestmark = pytest.mark.torch


def trained(model, loss, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def graph_network():
    edges, x, y = torch.randint(0, 100, (2, 500)), torch.randn(100, 16), torch.randint(0, 7, (100,))
    layer = nn.Linear(16, 7)
    ones, zeros = torch.ones(500), torch.zeros(100)

    def loss():
        source, target = edges
        degree = zeros.scatter_add(0, target, ones).pow(-0.5)
        messages = layer(x)[source] * (degree[source] * degree[target])[:, None]
        out = torch.zeros_like(layer(x)).index_add_(0, target, messages)
        top = out.scatter_reduce(0, source[:100, None].expand(-1, 7), out, "amax")
        return functional.nll_loss(functional.log_softmax(top, -1), y)

    return trained(layer, loss)


def recommender():
    bags, table = nn.EmbeddingBag(1000, 16, mode="mean", sparse=True), nn.Embedding(50, 16, padding_idx=0)
    head = nn.Sequential(nn.Linear(32, 8), nn.PReLU(), nn.BatchNorm1d(8), nn.Linear(8, 1))
    ids, offsets = torch.randint(0, 1000, (256,)), torch.arange(0, 256, 4)
    users, y = torch.randint(0, 50, (64,)), torch.rand(64, 1)
    sparse = torch.optim.SparseAdam(bags.parameters())
    dense = torch.optim.Adagrad([*table.parameters(), *head.parameters()])

    def step():
        sparse.zero_grad()
        dense.zero_grad()
        logits = head(torch.cat([bags(ids, offsets), table(users)], 1))
        functional.binary_cross_entropy_with_logits(logits, y).backward()
        sparse.step()
        dense.step()

    return step


def audio():
    layers = nn.ModuleList(
        [
            nn.Sequential(nn.Conv1d(1, 16, 10, 5), nn.GroupNorm(16, 16), nn.GELU()),
            nn.ConvTranspose1d(16, 16, 4, 2, 1),
            nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 29, 3, padding=1)),
        ]
    )
    wave, text, window = torch.randn(4, 1600), torch.randint(1, 29, (4, 20)), torch.hann_window(400)
    mel = torch.rand(80, 201)

    def loss():
        spectrum = torch.stft(wave, 400, 160, window=window, return_complex=True).abs().pow(2)
        x = wave[:, None]
        for layer in layers:
            x = layer(x)
        logs = functional.log_softmax(x.permute(2, 0, 1), -1)
        found = functional.ctc_loss(logs, text, (logs.shape[0],) * 4, (20,) * 4)
        return found + (mel @ spectrum).clamp(min=1e-10).log10().mean()

    return trained(layers, loss)


def video():
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1), nn.InstanceNorm3d(8, affine=True), nn.LeakyReLU(0.1), nn.MaxPool3d(2),
        nn.ConvTranspose3d(8, 16, 2, 2), nn.BatchNorm3d(16), nn.ELU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
    )  # fmt: skip
    x, y = torch.randn(2, 3, 8, 16, 16), torch.randint(0, 16, (2,))
    return trained(model, lambda: functional.cross_entropy(model(x), y, label_smoothing=0.1))


def warped():
    model, x = nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect"), torch.randn(4, 3, 16, 16)
    turn, target = nn.Parameter(torch.randn(4, 2, 3)), torch.zeros(4, 8, 32, 32)

    def loss():
        grid = functional.affine_grid(turn, x.size(), align_corners=False)
        y = model(functional.grid_sample(x, grid, align_corners=False, padding_mode="border"))
        big = functional.interpolate(y, scale_factor=2, mode="bicubic")
        return functional.smooth_l1_loss(big, target)

    return trained(nn.ParameterList([*model.parameters(), turn]), loss)


def spectral():
    weight, x = nn.Parameter(torch.randn(4, 4, 6, 6, dtype=torch.cfloat)), torch.randn(2, 4, 16, 16)

    def loss():
        low = torch.einsum("bixy,ioxy->boxy", torch.fft.rfft2(x)[:, :, :6, :6], weight)
        return torch.fft.irfft2(functional.pad(low, (0, 3, 0, 10)), s=(16, 16)).square().mean()

    return trained(nn.ParameterList([weight]), loss, torch.optim.Adam([weight]))


def routed():
    gate, up = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 32))
    down, x = nn.Parameter(torch.randn(4, 32, 16)), torch.randn(64, 16)

    def loss():
        scores = gate(x).softmax(-1)
        first = scores.topk(2, -1).indices[:, 0]
        chosen = functional.one_hot(first, 4).float()
        place = (
            functional.one_hot(((chosen.cumsum(0) - 1) * chosen).long().clamp(max=31), 32) * chosen[..., None]
        )
        inside = torch.einsum("tec,td->ecd", place, x)
        hidden = torch.einsum("ecd,edf->ecf", inside, up).relu()
        return torch.einsum("tec,ecd->td", place * scores[..., None], hidden @ down).square().mean()

    return trained(nn.ParameterList([*gate.parameters(), up, down]), loss)


def packed():
    table, network = nn.Embedding(100, 16), nn.GRU(16, 32, 2, batch_first=True, bidirectional=True)
    ids, lengths = torch.randint(0, 100, (8, 20)), torch.randint(5, 21, (8,))

    def loss():
        sequences = nn.utils.rnn.pack_padded_sequence(
            table(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, hidden = network(sequences)
        padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return padded.max(1).values.mean() + hidden[-1].mean()

    return trained(nn.ModuleList([table, network]), loss)


def translated():
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    source, target = torch.randn(4, 16, 32), torch.randn(4, 12, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(12)
    padded = torch.zeros(4, 16, dtype=torch.bool)

    def loss():
        return model(source, target, tgt_mask=mask, src_key_padding_mask=padded).square().mean()

    return trained(model, loss, torch.optim.NAdam(model.parameters()))


def penalised():
    critic = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(16, 32)), nn.Tanh(), nn.Linear(32, 1)
    )
    x = torch.randn(8, 16)

    def loss():
        z = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(critic(z).sum(), z, create_graph=True)
        return ((slope.norm(2, 1) - 1) ** 2).mean()

    return trained(critic, loss)


def per_sample():
    layer, x, y = nn.Linear(20, 5), torch.randn(32, 20), torch.randint(0, 5, (32,))
    weights = {name: value.detach() for name, value in layer.named_parameters()}

    def loss(weights, one, wanted):
        return functional.cross_entropy(
            torch.func.functional_call(layer, weights, (one[None],)), wanted[None]
        )

    return lambda: torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, x, y)


def scaled():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardswish(), nn.Flatten(), nn.Linear(288, 4)
    )
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def recomputed():
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 16))
    x = torch.randn(8, 16, requires_grad=True)
    wrapped = nn.DataParallel(model)

    def loss():
        once = checkpoint(wrapped, x, use_reentrant=False)
        return checkpoint(model, once, use_reentrant=True).mean()

    return trained(model, loss, torch.optim.Adafactor(model.parameters()))


KINDS = [
    graph_network, recommender, audio, video, warped, spectral, routed, packed, translated, penalised,
    per_sample, scaled, recomputed,
]  # fmt: skip


@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__)
def test_every_operator_is_known(build):
    step = captured(build)
    assert step.launches > 5
    unknown = {call.kernel.name for call in step.kernels if call.kernel.modelled is Modelled.BOUND}
    assert unknown == set()


@pytest.mark.parametrize(
    ("run", "kernels"),
    [
        # Two checks that the host reads, then p / q and the largest (Distributions.cpp).
        (lambda: torch.multinomial(torch.rand(4, 100), 1), 14),
        # Complex to real destroys its input, so that is copied; the scale is one more (SpectralOps.cpp).
        (lambda: torch.fft.irfft(torch.zeros(8, 65, dtype=torch.cfloat)), 4),
        (lambda: torch.fft.fft(torch.randn(8, 128)), 3),
        # An image at a time (Im2Col.cu).
        (lambda: functional.unfold(torch.randn(4, 3, 16, 16), 3), 5),
        # A list of problems, and one kernel for all of them.
        (
            lambda: torch._grouped_mm(
                torch.zeros(256, 64, dtype=torch.bfloat16),
                torch.zeros(4, 64, 128, dtype=torch.bfloat16),
                offs=torch.tensor([64, 128, 192, 256], dtype=torch.int32),
            ),
            5,
        ),
        (lambda: torch.fmod(torch.randn(8), 2.0), 2),
        (lambda: torch.zeros(8).index_select(0, torch.arange(4)), 3),
        (
            lambda: torch._int_mm(
                torch.zeros(32, 64, dtype=torch.int8), torch.zeros(64, 32, dtype=torch.int8)
            ),
            3,
        ),
    ],
)
def test_known_counts(run, kernels):
    assert recorded(lambda _: run())[0].launches == kernels


def test_flex_attention_is_one_kernel_with_half_the_blocks_where_causal():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415

    def build():
        q, k, v = torch.randn(3, 1, 4, 1024, 64, dtype=torch.bfloat16)
        mask = create_block_mask(lambda _, __, i, j: i >= j, 1, 4, 1024, 1024, device="cuda")
        compiled = torch.compile(flex_attention)
        return lambda: compiled(q, k, v, block_mask=mask)

    (call,) = captured(build).kernels
    assert call.kernel.op.causal


def test_generators_ranges_and_memory_are_there_and_do_nothing():
    def run(_):
        source = torch.Generator(device="cuda").manual_seed(1)
        with torch.cuda.nvtx.range("here"):
            x = torch.randn(4, device="cuda", generator=source)
        x.uniform_(generator=source)
        torch.cuda.set_rng_state(torch.cuda.get_rng_state())
        return source.device.type, torch.cuda.memory_allocated()

    step, found = recorded(run)
    assert found == ("cuda", 0)
    assert names(step) == {"randn": 1, "uniform_": 1}


def test_what_runs_in_backward_finds_the_gpu_too():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x * 2

        @staticmethod
        def backward(_, grad):
            assert grad.is_cuda
            return grad * torch.full_like(grad, 2, device="cuda")

    def run(_):
        x = torch.ones(4, requires_grad=True)
        Doubled.apply(x).sum().backward()
        return x.grad.shape

    assert recorded(run)[1] == (4,)


def test_a_program_that_holds_more_than_the_gpu_has_is_told_how_much_is_missing():
    def build(gigabytes):
        weights = [nn.Parameter(torch.empty(1 << 30, dtype=torch.bfloat16)) for _ in range(gigabytes // 4)]
        return lambda: [weight.sum().backward() for weight in weights]

    fits, exceeds = captured(lambda: build(80)), captured(lambda: build(200))
    assert fits.warnings == ()
    assert "are missing" in exceeds.warnings[0]


def test_a_sparse_gradient_has_the_rows_that_were_looked_up():
    def run(_):
        table = nn.Embedding(100, 8, sparse=True)
        table(torch.randint(0, 100, (50,))).sum().backward()
        return table.weight.grad._values().shape

    assert recorded(run)[1] == (50, 8)


STEP = """
import torch

def beside():
    x = torch.randn(8, 8)
    return lambda: x + torch.ones(8)

def apart():
    x = torch.randn(8, 8)
    return lambda: x + torch.ones(8, device="cpu")
"""


def test_a_step_without_devices_runs_with_the_gpu_as_the_current_one(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(STEP)
    step = capture_target(f"{file}:beside", (), device=DEVICE)
    assert names(step) == {"fill_": 1, "add": 1}
    assert "current device" in step.warnings[0]


def test_tensors_in_two_places_are_refused_as_cuda_does(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(STEP)
    with pytest.raises(Exception, match="cuda:0 and cpu"):
        capture_target(f"{file}:apart", (), device=DEVICE)
