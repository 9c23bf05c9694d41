"""The table of what trains, for people."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from torch import nn

from trainer.config import FreezingConfig
from trainer.freezing.groups import rate_factor
from trainer.freezing.plan import Plan

Row = tuple[str, int, int, str, str]
_HEAD = ("part", "parameters", "train", "rate", "")


def trainable_table(plan: Plan, freezing: FreezingConfig) -> str:
    """A line a part: parameters, how many of them train, the rate's factor, remarks.

    Layers that are alike stand in one line.
    """
    rows = [_row(plan, freezing, name, items) for name, items in plan.anatomy.parts()]
    known = {id(item) for _, items in plan.anatomy.parts() for item in items}
    added = tuple(item for item in plan.model.parameters() if id(item) not in known)
    if added:
        rows.append(("adapters", _size(added), _size(added, trainable=True), "1", "LoRA"))
    rows = list(_folded(rows))
    everything = tuple(plan.model.parameters())
    total = ("total", _size(everything), _size(everything, trainable=True), "", "")
    cells = [_HEAD, *(_cells(row) for row in (*rows, total))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in (0, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([*lines, *plan.notes])


def _row(
    plan: Plan, freezing: FreezingConfig, name: str, parameters: tuple[nn.Parameter, ...]
) -> Row:
    thaws = {f"layer {layer}": step for layer, step in plan.thaws}
    remarks = []
    if name == "embeddings" and plan.anatomy.tied:
        remarks.append("tied: also the head")
    if name == "embeddings" and freezing.embedding_gradient_scale != 1.0:
        remarks.append(f"gradient times {freezing.embedding_gradient_scale:g}")
    if name in thaws:
        remarks.append(f"from step {thaws[name]}")
    trainable = _size(parameters, trainable=True)
    factor = f"{rate_factor(plan, name, freezing.layer_decay):.3g}" if trainable else "-"
    return name, _size(parameters), trainable, factor, ", ".join(remarks)


def _folded(rows: Iterable[Row]) -> Iterable[Row]:
    """Consecutive layers with the same numbers as one row."""

    def key(row: Row) -> tuple[object, ...]:
        return (row[0].startswith("layer "), *row[1:])

    for _, alike in groupby(rows, key):
        group = list(alike)
        first, last = group[0][0], group[-1][0]
        if len(group) == 1 or not first.startswith("layer "):
            yield from group
            continue
        name = f"layers {first.removeprefix('layer ')} to {last.removeprefix('layer ')}"
        yield name, len(group) * group[0][1], len(group) * group[0][2], group[0][3], group[0][4]


def _size(parameters: Iterable[nn.Parameter], *, trainable: bool = False) -> int:
    return sum(item.numel() for item in parameters if item.requires_grad or not trainable)


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return row[0], f"{row[1]:,}", f"{row[2]:,}", row[3], row[4]
