"""The rows of a GPU as a table for people, and what they come to."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

PEERS = ("torch eager", "torch.compile", "max-autotune")
OTHER = "best other peer"
"""Peers with a column of their own; the best of the others is named."""

KNOWN = frozenset(("floor", "bytes", "gb_s", "flops", "compile_s", "max error", "kernels", "pipelink", "of floor", "best peer / ours", "spent", "spread",
                   "start_s", "no peer", "fault", "best peer", "interval", "parts", "beside", *PEERS))
"""What stands in a row beside further peers."""


def others(row: Mapping[str, Any]) -> dict[str, float]:
    """The times of peers without a column."""
    return {k: v for k, v in row.items() if k not in KNOWN and isinstance(v, float) and k not in row.get("parts", ())}


def geometric_mean(values: Iterable[float]) -> float | None:
    held = [v for v in values if v > 0]
    return math.exp(sum(map(math.log, held)) / len(held)) if held else None


def lines(found: Mapping[str, Any]) -> list[str]:
    """The table and its footnotes. `found` is what the step `bench` keeps."""
    rows: Mapping[str, Mapping[str, Any]] = found.get("rows", {})
    head = ("", "MB", "floor ms", "pipelink", "GB/s", "of floor", *PEERS, OTHER, "best peer / ours")
    body = [(name, *_cells(r)) for name, r in rows.items()]
    widths = [max(len(r[k]) for r in (head, *body)) for k in range(len(head))]
    out = []
    for line in (head, *body):
        cells = (c.ljust(w) if h in ("", OTHER) else c.rjust(w) for h, c, w in zip(head, line, widths, strict=True))
        out.append("  ".join(cells).rstrip())
    out.append(f"a copy moves {found.get('copy_gb_s', 0):.0f} GB/s (reading and writing counted), a product of bf16 reaches "
               f"{found.get('product_tflop_s', 0):.0f} TFLOP/s")
    whole = [r for r in rows.values() if "pipelink" in r]
    for peer in (*PEERS, "best peer"):
        ratios = [r["best peer / ours"] if peer == "best peer" else r[peer] / r["pipelink"] for r in whole if peer in r]
        mean = geometric_mean(ratios)
        if mean is not None:
            out.append(f"geometric mean over {len(ratios)} rows: {peer} takes {mean:.2f} times as long")
    out += beside(rows)
    for name, r in rows.items():
        out += [f"{name}: {part} {r[part]:.4f} ms, {r[part] / r['pipelink']:.2f} times ours" for part in r.get("parts", ()) if part in r and "pipelink" in r]
        out += [f"{name}: no {peer}: {why}" for peer, why in r.get("no peer", {}).items()]
        out += [f"{name}: FAULT: {r['fault']}"] if "fault" in r else []
    out += [f"no {peer}: {why}" for peer, why in found.get("missing_peers", {}).items()]
    return out


def beside(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Of each row that is compared with another one: the time per byte of both."""
    out = []
    for name, r in rows.items():
        other = rows.get(r.get("beside", ""), {})
        if "pipelink" in r and "pipelink" in other:
            here, there = (1e9 * x["pipelink"] / x["bytes"] for x in (r, other))
            out.append(f"{name}: {here:.3f} ns per kB, {here / there:.2f} times that of '{r['beside']}' ({there:.3f})")
    return out


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    def ms(key: str) -> str:
        return f"{row[key]:.4f}" if key in row else "-"

    more = others(row)
    best = min(more, key=lambda k: more[k]) if more else ""
    low, high = row.get("interval", (0, 0))
    ratio = f"{row['best peer / ours']:.2f} [{low:.2f}, {high:.2f}]" if "best peer / ours" in row else "-"
    reached = f"{row['of floor']:.2f}" if "of floor" in row else "-"
    size = f"{row['bytes'] / 1e6:.1f}" if "bytes" in row else "-"
    rate = f"{row['gb_s']:.0f}" if "gb_s" in row else "-"
    return (size, ms("floor"), ms("pipelink"), rate, reached, *(ms(p) for p in PEERS), f"{best} {more[best]:.4f}" if best else "", ratio)
