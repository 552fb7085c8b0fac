"""Trains the weights of `examples/precision/denoiser.plir`: `python examples/training/denoiser.py` (needs `pip install torch`; some minutes on a CPU).

The network predicts the noise and has no normalisation. It is trained in three steps: in f32; then its channels are made level, which changes nothing of
what it computes (see `level`); then it goes on with the roundings of int8 in place, so that it finds weights that do not mind them. What is stored is f16.
The file that comes with the example was written by this script; training again gives other weights that do as well, since sums on several cores do not
come in one order.
"""
from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
PRECISION = HERE.parent / "precision"
sys.path.insert(0, str(PRECISION))

import data  # noqa: E402

CHANNELS, BLOCKS, STEPS, ROUNDED, BATCH, SIZE = 32, 4, 1500, 700, 16, 48


def rounded(x: Tensor, axis: int | None = None) -> Tensor:
    """What is left of x when it is stored as int8, by one scale or by one for each index of an axis. Gradients pass as if nothing happened."""
    largest = x.detach().abs().amax() if axis is None else x.detach().abs().amax([i for i in range(x.dim()) if i != axis], keepdim=True)
    scale = torch.where(largest > 0, largest / 127, 1)
    return x + (scale * torch.round(x / scale) - x).detach()


class Net(nn.Module):
    """Stem, four separable convolutions, head; parameters have the names and shapes of the program's."""

    def __init__(self) -> None:
        super().__init__()
        c = CHANNELS
        shapes: dict[str, tuple[int, ...]] = {"k0": (3, 3, 1, c), "b0": (c,)}
        for i in range(1, BLOCKS + 1):
            shapes |= {f"dk{i}": (3, 3, c), f"db{i}": (c,), f"pk{i}": (c, c), f"pb{i}": (c,)}
        shapes |= {"k5": (3, 3, c, 1), "b5": (1,)}
        for name, shape in shapes.items():
            terms = {"k": math.prod(shape[:3]), "d": 9, "p": c}[name[0]] if "k" in name else 0
            self.register_parameter(name, nn.Parameter((math.sqrt(2 / terms) if terms else 0.0) * torch.randn(shape)))

    def forward(self, noisy: Tensor, int8: bool = False, largest: dict[str, Tensor] | None = None) -> Tensor:
        """The noise of pictures [N, 1, H, W]; with the roundings of int8 in the blocks and the head if asked. `largest` gathers the largest of each channel."""
        p = dict(self.named_parameters())

        def inputs(x: Tensor) -> Tensor:
            return rounded(x) if int8 else x

        def weights(name: str, channels: int) -> Tensor:
            return rounded(p[name], channels) if int8 else p[name]

        def out(name: str, x: Tensor) -> Tensor:
            y = functional.relu(x + p[name][:, None, None])
            if largest is not None:
                largest[name] = y.detach().amax((0, 2, 3))
            return y
        x = out("b0", functional.conv2d(noisy, p["k0"].permute(3, 2, 0, 1), padding=1))
        for i in range(1, BLOCKS + 1):
            x = out(f"db{i}", functional.conv2d(inputs(x), weights(f"dk{i}", 2).permute(2, 0, 1)[:, None], padding=1, groups=CHANNELS))
            x = out(f"pb{i}", functional.conv2d(inputs(x), weights(f"pk{i}", 1).t()[:, :, None, None]))
        return functional.conv2d(inputs(x), weights("k5", 3).permute(3, 2, 0, 1), p["b5"], padding=1)


@torch.no_grad()
def level(net: Net, noisy: Tensor, to: float = 4.0) -> None:
    """Give the channels of every inner edge the same largest value, so that they share one scale well: relu(s x) = s relu(x) for any s > 0, so a factor can go
    from the weights that make a channel to those that read it. What channels differ by is then in the weights, which have a scale for each."""
    largest: dict[str, Tensor] = {}
    net(noisy, largest=largest)
    factor = {name: torch.where(x > 0.01, to / x, 1) for name, x in largest.items()}
    p = dict(net.named_parameters())
    for name, s in factor.items():
        p[name].mul_(s)
    p["k0"].mul_(factor["b0"])
    before = factor["b0"]
    for i in range(1, BLOCKS + 1):
        p[f"dk{i}"].mul_(factor[f"db{i}"] / before)
        p[f"pk{i}"].mul_(factor[f"pb{i}"] / factor[f"db{i}"][:, None])
        before = factor[f"pb{i}"]
    p["k5"].div_(before[:, None])


def train(net: Net, rng: np.random.Generator, steps: int, rate: float, int8: bool) -> None:
    """Some steps of Adam, at a rate that falls to nothing."""
    adam = torch.optim.Adam(net.parameters(), rate)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for step in range(steps):
        clean = data.shapes(rng, BATCH, SIZE).transpose(0, 3, 1, 2)
        noise = data.NOISE * torch.from_numpy(rng.standard_normal(clean.shape).astype(np.float32))
        loss = functional.mse_loss(net(torch.from_numpy(clean) + noise, int8), noise)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        adam.step()
        falls.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: {-10 * math.log10(loss.item()):.2f} dB", flush=True)


def main() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(data.SEEDS["training"])
    net = Net()
    train(net, rng, STEPS, 3e-3, int8=False)
    level(net, torch.from_numpy(data.noisy(rng, data.shapes(rng, 64, SIZE)).astype(np.float32).transpose(0, 3, 1, 2)))
    train(net, rng, ROUNDED, 1e-3, int8=True)
    np.savez_compressed(PRECISION / "denoiser.npz", **{n: p.detach().numpy().astype(np.float16) for n, p in net.named_parameters()})


if __name__ == "__main__":
    main()
