"""Tables and numbers as people see them."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfreq.cli import output
from streamfreq.cli.output import Column, ago, fields, moment, number, percent, table, visible


def test_the_examples_in_the_docstrings() -> None:
    result = doctest.testmod(output)
    assert result.attempted >= 6
    assert result.failed == 0


@given(st.floats(min_value=1e-9, allow_nan=False, allow_infinity=False))
def test_a_number_shows_its_first_four_digits(value: float) -> None:
    text = number(value).replace(",", "")
    assert float(text) == pytest.approx(value, rel=1e-3)


def test_what_is_no_number() -> None:
    assert (number(math.inf), number(math.nan), percent(None)) == ("inf", "nan", "-")


@given(st.text(max_size=20))
def test_a_token_never_reaches_the_terminal_raw(token: str) -> None:
    text = visible(token)
    assert text.isprintable()
    assert not text.startswith(" ")
    assert not text.endswith(" ")


def test_columns_line_up_whatever_the_script() -> None:
    lines = table(
        [Column("token", numeric=False), Column("n")], [("疫情", "1"), ("covid", "1,000")]
    ).splitlines()
    assert lines == ["token      n", "疫情       1", "covid  1,000"]


def test_fields_line_up() -> None:
    assert fields({"a": "1", "long": "2"}) == "a     1\nlong  2"


def test_times() -> None:
    assert moment(1_604_686_251_000) == "2020-11-06 18:10:51Z"
    assert moment(-1) == "none yet"
    assert moment(10**30) == f"{10**30} ms"
    assert ago(0, 500) == "0 s ago"
