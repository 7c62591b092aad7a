"""Every test that FIELD_CASES.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", (TESTS / "FIELD_CASES.md").read_text(encoding="utf-8"))


def test_every_test_that_the_field_cases_name_exists() -> None:
    missing = [
        f"{file}::{name}"
        for file, name in NAMED
        if not (TESTS / file).is_file() or f"def {name}(" not in (TESTS / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_field_case_has_a_test() -> None:
    rows = re.findall(r"^\| (?!read at)(.*) \|$", (TESTS / "FIELD_CASES.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 30
    assert [row for row in rows if "::test_" not in row] == []
