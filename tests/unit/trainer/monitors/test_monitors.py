"""Bands, band losses, the guard, and every output of an interval."""

from __future__ import annotations

import itertools
import json
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from streamfreq.clock import ManualClock
from streamfreq.errors import ConfigError, DataRefused
from tests.architecture.source_files import ROOT
from trainer.blocks import IGNORED
from trainer.config import MonitorsConfig
from trainer.monitors import Monitors, RunFacts
from trainer.monitors.bands import EMERGING, HEAD, NAMES, SPECIAL, TAIL, TORSO, UNSEEN, Bands
from trainer.monitors.guard import RareBandGuard
from trainer.monitors.history import History, read_history
from trainer.monitors.losses import BandLosses
from trainer.monitors.plot import draw
from trainer.monitors.progress import line
from trainer.monitors.prometheus import METRICS
from trainer.reports import StepReport, TokenLosses
from trainer.token_weights import TokenTables

V = 10


def tables(version: int = 3, rise: dict[int, float] | None = None) -> TokenTables:
    counts = torch.tensor([40.0, 30.0, 10.0, 8.0, 5.0, 4.0, 2.0, 1.0, 0.0, 0.0])
    rises = torch.ones(V)
    for token, value in (rise or {}).items():
        rises[token] = value
    parts = {
        **TokenTables.neutral(V).tensors(),
        "share_V": counts / counts.sum(),
        "count_V": counts,
        "rise_V": rises,
        "weights_V": torch.linspace(0.5, 1.5, V),
    }
    facts = {"version": version, "epoch": 1, "created_at_ms": 1, "as_of_ms": 1}
    return TokenTables.from_parts(parts, facts)


def names(bands: Bands) -> list[str]:
    return [NAMES[index] for index in bands.band_V.tolist()]


def test_bands_by_mass() -> None:
    config = MonitorsConfig(head_mass=0.6, tail_mass=0.1)
    bands = Bands.of(tables(rise={5: 4.0, 8: 9.0}), config, special_ids={9})
    wanted = [HEAD, HEAD, TORSO, TORSO, TORSO, EMERGING, TAIL, TAIL, UNSEEN, SPECIAL]
    assert names(bands) == wanted


@given(
    shares=st.lists(st.sampled_from([0.0, 1.0, 2.0, 50.0]), min_size=1, max_size=30),
    head=st.floats(0.05, 0.9),
    tail=st.floats(0.05, 0.9),
)
def test_every_token_is_in_one_band_and_frequent_ones_above_rare_ones(
    shares: list[float], head: float, tail: float
) -> None:
    share = torch.tensor(shares) / max(sum(shares), 1.0)
    neutral = TokenTables.neutral(len(shares))
    parts = {**neutral.tensors(), "share_V": share, "count_V": share}
    made = TokenTables.from_parts(parts, {**neutral.facts(), "version": 1})
    bands = names(Bands.of(made, MonitorsConfig(head_mass=head, tail_mass=tail)))
    order = [HEAD, TORSO, TAIL, UNSEEN]
    assert all((band == UNSEEN) == (value == 0) for band, value in zip(bands, shares, strict=True))
    ranked = sorted(zip(shares, bands, strict=True), key=lambda pair: -pair[0])
    for (more, above), (less, below) in itertools.pairwise(ranked):
        if more > less:
            assert order.index(above) <= order.index(below)


def losses(tokens: list[int], values: list[float], fresh: list[bool]) -> TokenLosses:
    return TokenLosses(torch.tensor(tokens), torch.tensor(values), torch.tensor(fresh))


def test_losses_are_means_by_band_and_old_rows_can_be_left_out() -> None:
    bands = Bands.of(tables(), MonitorsConfig(head_mass=0.6, tail_mass=0.1))
    taken = losses(
        [0, 1, 7, IGNORED, 8], [1.0, 3.0, 7.0, 99.0, 5.0], [True, False, True, True, True]
    )
    for fresh_only, head in ((False, 2.0), (True, 1.0)):
        sums = BandLosses()
        sums.add(taken, bands, fresh_only=fresh_only)
        found = sums.take(lambda tensor: tensor, torch.device("cpu"))
        assert {name: band.loss for name, band in found.items()} == {
            HEAD: head,
            TAIL: 7.0,
            UNSEEN: 5.0,
        }
        assert sums.take(lambda tensor: tensor, torch.device("cpu")) == {}


def test_losses_of_several_processes_are_one_mean() -> None:
    bands = Bands.of(tables(), MonitorsConfig())
    sums = BandLosses()
    sums.add(losses([0], [2.0], [True]), bands, fresh_only=False)
    other = torch.zeros((2, len(NAMES)), dtype=torch.float64)
    other[:, 0] = torch.tensor([9.0, 3.0])
    found = sums.take(lambda tensor: tensor + other, torch.device("cpu"))
    assert (found[HEAD].loss, found[HEAD].tokens) == (11.0 / 4, 4)


def guard_config(**fields: object) -> MonitorsConfig:
    return MonitorsConfig.model_validate({"guard_patience": 3, **fields})


@pytest.mark.parametrize("seed", range(20))
def test_healthy_noisy_curves_never_trigger_the_guard(seed: int) -> None:
    noise = np.random.default_rng(seed)
    guard = RareBandGuard(guard_config())
    for step in range(400):
        rest = 3 + 5 * np.exp(-step / 50) + noise.normal(0, 0.2)
        tail = 7 + 2 * np.exp(-step / 80) + noise.normal(0, 0.6)
        assert guard.observe(tail, rest) == 1.0


def test_a_diverging_tail_lowers_the_strength_and_a_calm_one_raises_it_again() -> None:
    guard = RareBandGuard(guard_config())
    for _ in range(20):
        guard.observe(6.0, 3.0)
    strengths = [guard.observe(6.0 + step, 3.0) for step in range(1, 12)]
    assert strengths[0] == 1.0
    assert strengths[-1] <= 0.5
    for _ in range(200):
        last = guard.observe(6.0, 3.0)
    assert last == 1.0


def test_both_curves_growing_is_no_matter_of_the_weights() -> None:
    guard = RareBandGuard(guard_config())
    for step in range(60):
        assert guard.observe(6.0 * (1 + step / 10), 3.0 * (1 + step / 10)) == 1.0


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0))
def test_constant_losses_never_trigger_the_guard(tail: float, rest: float) -> None:
    guard = RareBandGuard(guard_config())
    assert {guard.observe(tail, rest) for _ in range(20)} == {1.0}


def test_the_guard_passes_over_losses_that_are_no_numbers() -> None:
    guard = RareBandGuard(guard_config())
    guard.observe(6.0, 3.0)
    before = guard.state_dict()
    for bad in (float("nan"), float("inf")):
        guard.observe(bad, 3.0)
        guard.observe(6.0, bad)
    assert guard.state_dict() == before


def test_the_guard_goes_on_after_a_resume() -> None:
    first, second = RareBandGuard(guard_config()), RareBandGuard(guard_config())
    for step in range(25):
        first.observe(6.0 + 0.5 * step, 3.0)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step in range(25, 60):
        assert first.observe(6.0 + 0.5 * step, 3.0) == second.observe(6.0 + 0.5 * step, 3.0)


def report(step: int, token: int = 0, skipped: str = "") -> StepReport:
    return StepReport(
        step=step,
        token_losses=(losses([token, 7, IGNORED], [2.0, 6.0, 0.0], [True, True, True]),),
        weighted_sum=torch.tensor(7.0),
        weight_sum=torch.tensor(1.75, dtype=torch.float64),
        squared_weight_sum=torch.tensor(2.0, dtype=torch.float64),
        plain_sum=torch.tensor(8.0),
        tokens=torch.tensor(2.0),
        gradient_norm=0.5,
        learning_rate=1e-3,
        skipped=skipped,
        seconds={"weighting": 0.001},
    )


def monitors(output: Path, **config: object) -> Monitors:
    settings = {"log_interval_steps": 2, "tensorboard": False, **config}
    made = Monitors(
        MonitorsConfig.model_validate(settings),
        output,
        ManualClock(5_000),
        is_main=True,
        reduce=lambda tensor: tensor,
        token_text=lambda token: f" token{token}",
    )
    made.swapped(tables(rise={4: 6.0}))
    return made


FACTS = RunFacts(records=9, bad_records=1, lag_records=40, snapshot_age_seconds=3.0, refused=2)


def steps(made: Monitors, first: int, last: int) -> None:
    for step in range(first, last + 1):
        made.observe(report(step), wait_seconds=0.0)
        made.maybe_log(step, lambda: FACTS)


def test_an_interval_holds_means_over_its_steps(tmp_path: Path) -> None:
    made = monitors(tmp_path)
    made.begin(0)
    steps(made, 1, 4)
    made.close()
    intervals = list(read_history(tmp_path / "metrics.jsonl"))
    assert [item["step"] for item in intervals] == [2, 4]
    item = intervals[-1]
    assert item["tokens"] == 8
    assert (item["plain"], item["weighted"]) == (4.0, 4.0)
    assert item["prequential"] == 4.0
    assert item["prequential_bands"][TAIL] == {"loss": 6.0, "tokens": 2}
    assert item["effective_sample_size"] == pytest.approx(3.5**2 / 4 / 4)
    assert (item["records"], item["lag_records"], item["refused"]) == (9, 40, 2)
    (risen,) = item["rising"]
    assert (risen["token_id"], risen["text"], risen["rise"]) == (4, " token4", 6.0)


def test_the_history_goes_on_at_the_step_of_the_resume(tmp_path: Path) -> None:
    first = monitors(tmp_path)
    first.begin(0)
    steps(first, 1, 6)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "cut by a cra')
    second = monitors(tmp_path)
    second.begin(4)
    steps(second, 5, 8)
    assert [item["step"] for item in read_history(tmp_path / "metrics.jsonl")] == [2, 4, 6, 8]


def test_a_history_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"output: .*can't be written"):
        History(tmp_path / "file" / "metrics.jsonl").begin(0)


def test_the_progress_line_says_what_is_out_of_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trainer.progress")
    made = monitors(tmp_path)
    made.begin(0)
    made.observe(report(1), 0.0)
    made.observe(report(2, skipped="the gradient is not finite"), 0.0)
    made.maybe_log(2, lambda: FACTS)
    (told,) = [record.message for record in caplog.records]
    assert told.startswith("step 2 | loss 4.000 (weighted 4.000, new 4.000) | tail 6.00 | ")
    for part in ("snapshot 3, 3 s old", "lag 40 records", "1 steps skipped", "1 bad records"):
        assert part in told
    assert len(told) < 200


def test_prometheus_shows_every_metric(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainer.monitors")
    made = monitors(tmp_path, http_port=0)
    try:
        made.begin(0)
        steps(made, 1, 2)
        url = caplog.records[0].message.split(" on ")[1]
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        for name in METRICS:
            assert f"\n{name}" in text
        assert "trainer_steps_total 2.0" in text
        assert "trainer_snapshot_version 3.0" in text
        assert 'trainer_band_loss{band="tail"} 6.0' in text
        port = url.split(":")[2].split("/")[0]
        with pytest.raises(ConfigError, match=f"monitors.http_port = {port}: can't listen"):
            monitors(tmp_path, http_port=int(port))
    finally:
        made.close()


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "trainer.md").read_text(encoding="utf-8")
    assert [name for name in METRICS if f"`{name}`" not in text] == []


def test_tensorboard_gets_every_curve(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = monitors(tmp_path, tensorboard=True)
    made.begin(0)
    steps(made, 1, 4)
    made.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    curves = set(events.Tags()["scalars"])
    assert {"loss/plain", "loss/weighted", f"prequential/{TAIL}", "snapshot/version"} <= curves
    assert [point.step for point in events.Scalars("loss/plain")] == [2, 4]


@pytest.mark.parametrize("kind", ["usual", "one point", "no snapshot"])
def test_the_picture_is_drawn(tmp_path: Path, kind: str) -> None:
    made = monitors(tmp_path)
    if kind == "no snapshot":
        made.swapped(TokenTables.neutral(V))
    made.begin(0)
    steps(made, 1, 2 if kind == "one point" else 12)
    draw(tmp_path / "metrics.jsonl", tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        assert image.size == (1200, 960)
        assert len(image.convert("RGB").getcolors(1_000_000)) > 20


def test_no_picture_without_a_point(tmp_path: Path) -> None:
    with pytest.raises(DataRefused, match="no interval yet"):
        draw(tmp_path / "metrics.jsonl", tmp_path / "curves.png")


def test_a_line_has_the_same_form_without_a_snapshot(tmp_path: Path) -> None:
    made = monitors(tmp_path)
    made.swapped(TokenTables.neutral(V))
    made.observe(report(2), 0.0)
    interval = made._interval(2, RunFacts(), {}, {})
    assert "no snapshot yet" in line(interval)


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_the_history_keeps_every_interval_whatever_a_token_looks_like(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        lines = [{"step": step, "text": text} for step, text in enumerate(texts)]
        path.write_text(
            "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in lines),
            encoding="utf-8",
        )
        assert list(read_history(path)) == lines
        History(path).begin(len(texts))
        assert list(read_history(path)) == lines
