"""Trains the weights of `examples/precision/inspection.plir`: `python examples/training/inspection.py` (needs `pip install torch`; some minutes on a CPU).

While it is trained each convolution is followed by a batch normalisation, and what depthwise channels give is asked to be small on average (an L1 penalty),
so that most of them are 0 in most places. At the end two things are done to the weights that change nothing of what the network computes. The normalisations
are folded into the convolutions, as one does for inference. Then channels are made level (`level`): on every edge each has the same largest value, so that they
share one scale well. What channels differ by is in the weights afterwards: the largest weight of one depthwise channel is hundreds of times that of another. A
scale for each channel does not mind; one scale for all of a tensor leaves most channels no codes but 0.
"""
from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
PRECISION = HERE.parent / "precision"
sys.path.insert(0, str(PRECISION))

import data  # noqa: E402

STEPS, BATCH, WIDTHS, SPARSE = 500, 32, (32, 32, 64, 64), 0.02


def _unit(channels: int, to: int, groups: int, size: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, to, size, padding=size // 2, groups=groups, bias=False), nn.BatchNorm2d(to), nn.ReLU())


class Net(nn.Module):
    """Stem, three stages of a depthwise and a pointwise convolution, the mean, and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _unit(1, WIDTHS[0], 1, 3)
        self.depth = nn.ModuleList(_unit(c, c, c, 3) for c in WIDTHS[:-1])
        self.point = nn.ModuleList(_unit(c, to, 1, 1) for c, to in pairwise(WIDTHS))
        self.head = nn.Linear(WIDTHS[-1], len(data.CLASSES))

    def forward(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of pictures [N, 1, H, W], and the means of what depthwise channels give, added up."""
        x, given = self.stem(part), torch.zeros(())
        for depth, point in zip(self.depth, self.point, strict=True):
            x = depth(x)
            given = given + x.mean((0, 2, 3)).sum()
            x = functional.max_pool2d(point(x), 2)
        return self.head(x.mean((2, 3))), given


def folded(unit: nn.Sequential) -> tuple[Tensor, Tensor]:
    """Weights and bias of a convolution that does what it and the normalisation after it do."""
    conv, norm = unit[0], unit[1]
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_var is not None
    assert norm.running_mean is not None
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return conv.weight * factor[:, None, None, None], norm.bias - norm.running_mean * factor


def weights(net: Net) -> dict[str, Tensor]:
    """The parameters of the program, by name."""
    out: dict[str, Tensor] = {}
    k, out["b0"] = folded(net.stem)
    out["k0"] = k.permute(2, 3, 1, 0)
    for i, (depth, point) in enumerate(zip(net.depth, net.point, strict=True), 1):
        assert isinstance(depth, nn.Sequential)
        assert isinstance(point, nn.Sequential)
        k, out[f"db{i}"] = folded(depth)
        out[f"dk{i}"] = k[:, 0].permute(1, 2, 0)
        k, out[f"pb{i}"] = folded(point)
        out[f"pk{i}"] = k[:, :, 0, 0].t()
    out["w"], out["b"] = net.head.weight.t(), net.head.bias
    return out


def level(p: dict[str, Tensor], net: Net, part: Tensor, to: float = 4.0) -> None:
    """Give the channels of every edge inside the same largest value: relu(s x) = s relu(x) for any s > 0, so a factor can go from the weights that
    make a channel to those that read it."""
    def factor(x: Tensor) -> Tensor:
        largest = x.amax((0, 2, 3))
        return torch.where(largest > 0.01, to / largest, 1)
    x = net.stem(part)
    before = factor(x)
    p["k0"], p["b0"] = p["k0"] * before, p["b0"] * before
    for i, (depth, point) in enumerate(zip(net.depth, net.point, strict=True), 1):
        x = depth(x)
        s = factor(x)
        p[f"dk{i}"], p[f"db{i}"] = p[f"dk{i}"] * s / before, p[f"db{i}"] * s
        x = functional.max_pool2d(point(x), 2)
        before = factor(x)
        p[f"pk{i}"], p[f"pb{i}"] = p[f"pk{i}"] / s[:, None] * before, p[f"pb{i}"] * before
    p["w"] = p["w"] / before[:, None]


def main() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(data.SEEDS["training"])
    net = Net()
    adam = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=1e-2)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    for step in range(STEPS):
        parts, labels = data.defects(rng, BATCH)
        scores, given = net(torch.from_numpy(parts.astype(np.float32).transpose(0, 3, 1, 2)))
        loss = functional.cross_entropy(scores, torch.from_numpy(labels)) + SPARSE * given
        adam.zero_grad()
        loss.backward()
        adam.step()
        falls.step()
        if step % 100 == 0 or step == STEPS - 1:
            right = (scores.argmax(1).numpy() == labels).mean()
            print(f"step {step}: loss {loss.item():.4f}, {right:.0%} of the batch right", flush=True)
    net.eval()
    with torch.no_grad():
        p = weights(net)
        level(p, net, torch.from_numpy(data.defects(rng, 256)[0].astype(np.float32).transpose(0, 3, 1, 2)))
    np.savez_compressed(PRECISION / "inspection.npz", **{n: np.ascontiguousarray(x.detach().numpy()).astype(np.float16) for n, x in p.items()})


if __name__ == "__main__":
    main()
