"""The picture of a run: loss per band, and the weights of the tokens that have risen most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamfreq.errors import DataRefused
from trainer.monitors.bands import NAMES, SPECIAL
from trainer.monitors.history import read_history

TOKENS = 8
SMOOTHED_TO = 40
"""A curve of more points than this is a moving mean."""
_SHOWN = [name for name in NAMES if name != SPECIAL]
_COLORS = dict(zip(_SHOWN, ("#1f5f8b", "#5aa469", "#d08c2e", "#8a8a8a", "#b8336a"), strict=True))


def draw(history: Path, png: Path) -> None:
    """Draw the intervals of `history` to `png`; raises DataRefused when there is none."""
    intervals = list(read_history(history))
    if not intervals:
        raise DataRefused(
            f"{history}: no interval yet; let the run go on for monitors.log_interval_steps steps"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    _draw_losses(upper, intervals)
    _draw_weights(lower, intervals)
    lower.set_xlabel("optimizer step")
    FigureCanvasAgg(figure)
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=120, format="png")


def _draw_losses(axes: Any, intervals: Sequence[dict[str, Any]]) -> None:
    scored = any(item["prequential_bands"] for item in intervals)
    key = "prequential_bands" if scored else "bands"
    for name in _SHOWN:
        points = _smoothed([(item["step"], item[key].get(name)) for item in intervals])
        if points:
            axes.plot(*zip(*points, strict=True), label=name, color=_COLORS[name], linewidth=1.5)
    what = "new text, scored before it is learned" if scored else "text in training"
    axes.set_title(f"Loss per band of token frequency ({what})", loc="left")
    axes.set_ylabel("cross entropy, nats")
    axes.grid(alpha=0.25)
    axes.legend(loc="upper right", ncols=len(_SHOWN), fontsize="small")


def _smoothed(
    points: Sequence[tuple[int, dict[str, float] | None]],
) -> list[tuple[int, float]]:
    """Means over the last intervals, by their tokens; steps without a token have no point."""
    width = max(1, len(points) // SMOOTHED_TO)
    found = []
    for index, (step, _) in enumerate(points):
        bands = [band for _, band in points[max(0, index - width + 1) : index + 1] if band]
        tokens = sum(band["tokens"] for band in bands)
        if tokens:
            found.append((step, sum(band["loss"] * band["tokens"] for band in bands) / tokens))
    return found


def _draw_weights(axes: Any, intervals: Sequence[dict[str, Any]]) -> None:
    axes.set_title("Weights of the tokens that have risen most", loc="left")
    axes.set_ylabel("weight in the loss")
    axes.grid(alpha=0.25)
    curves = _risen(intervals)
    if not curves:
        text = "no snapshot came, all weights were 1"
        if any(item["version"] for item in intervals):
            text = "no token has risen"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
        return
    for text, points in curves:
        axes.plot(*zip(*points, strict=True), marker=".", linewidth=1.2, label=text)
    axes.axhline(1.0, color="#8a8a8a", linewidth=0.8, linestyle="--")
    axes.legend(loc="upper left", ncols=2, fontsize="small")


def _risen(intervals: Sequence[dict[str, Any]]) -> list[tuple[str, list[tuple[int, float]]]]:
    """Label and points of the tokens that rose furthest at any time; whole words first."""
    highest: dict[int, float] = {}
    points: dict[int, list[tuple[int, float]]] = {}
    labels: dict[int, str] = {}
    for item in intervals:
        for token in item["rising"]:
            id_ = token["token_id"]
            highest[id_] = max(highest.get(id_, 0.0), token["rise"])
            points.setdefault(id_, []).append((item["step"], token["weight"]))
            labels[id_] = _label(token["text"])
    order = sorted(highest, key=lambda id_: (not _is_word(labels[id_]), -highest[id_], id_))
    return [(labels[id_], points[id_]) for id_ in order[:TOKENS]]


def _label(text: str) -> str:
    """Without what matplotlib would take for a formula, or leave out of a legend."""
    shown = text.strip().replace("$", r"\$").lstrip("_")
    return shown or repr(text)


def _is_word(label: str) -> bool:
    return len(label) > 3 and label.isalpha() and label.isascii()
