"""Golden table of event times."""

from __future__ import annotations

import math

import pytest

from streamfreq.text.event_time import TimeUnit, parse_event_time_ms

GOLDEN: list[tuple[object, TimeUnit, int | None]] = [
    (1604686251000, "ms", 1604686251000),
    (1604686251000.6, "ms", 1604686251001),
    ("1604686251000", "ms", 1604686251000),
    (" +1604686251000 ", "ms", 1604686251000),
    ("1.6e12", "ms", 1_600_000_000_000),
    (0, "ms", 0),
    (2**63 - 1, "ms", 2**63 - 1),
    (2**63, "ms", None),
    (10**400, "ms", None),
    (-1, "ms", None),
    ("-1", "ms", None),
    (math.nan, "ms", None),
    (math.inf, "ms", None),
    (1e300, "ms", None),
    ("9" * 5000, "ms", None),
    ("1e999", "ms", None),
    ("nan", "ms", None),
    ("1_000", "ms", None),
    ("١٢٣", "ms", None),
    ("", "ms", None),
    (True, "ms", None),
    (None, "ms", None),
    ([1], "ms", None),
    ({}, "ms", None),
    (1604686251, "s", 1604686251000),
    (1604686251.123, "s", 1604686251123),
    ("1604686251.5", "s", 1604686251500),
    (2**62, "s", None),
    (1.7e308, "s", None),
    ("2020-11-06T18:10:51Z", "iso", 1604686251000),
    ("2020-11-06t18:10:51z", "iso", 1604686251000),
    ("2020-11-06T18:10:51", "iso", 1604686251000),
    ("2020-11-06 19:10:51.1239+01:00", "iso", 1604686251123),
    ("20201106T181051Z", "iso", 1604686251000),
    ("2020-11-06", "iso", 1604620800000),
    ("1969-12-31T23:59:59Z", "iso", None),
    ("0001-01-01T00:00:00+05:00", "iso", None),
    ("1970-01-01T00:30:00+01:00", "iso", None),
    ("2020-13-01", "iso", None),
    ("yesterday", "iso", None),
    ("", "iso", None),
    (1604686251000, "iso", None),
    (None, "iso", None),
]


@pytest.mark.parametrize(("value", "unit", "expected"), GOLDEN)
def test_golden(value: object, unit: TimeUnit, expected: int | None) -> None:
    assert parse_event_time_ms(value, unit) == expected
