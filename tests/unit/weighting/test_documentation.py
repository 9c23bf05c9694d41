from __future__ import annotations

from pathlib import Path

from streamfreq.weighting import SCHEMES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "weights.md"


def test_the_table_says_what_the_code_does() -> None:
    rows = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].strip("`") in SCHEMES:
            rows[cells[0].strip("`")] = cells[2:]
    for name, scheme in SCHEMES.items():
        parameters = ", ".join(
            f"`{key}` ({parameter.default:g})" for key, parameter in scheme.parameters.items()
        )
        assert rows[name] == [scheme.direction, parameters, "yes" if scheme.scale_free else "no"]
