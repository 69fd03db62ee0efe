"""The page about performance shows the tables of the attention plan."""

import re
from pathlib import Path

from keras_diet.layers.attention.plan_rules import TABLES, as_markdown

PAGE = Path(__file__).parents[3] / "docs" / "performance.md"
BEGIN = "<!-- plan tables: python -m keras_diet.layers.attention.plan_rules -->"
END = "<!-- end of plan tables -->"


def tables_of_page():
    (tables,) = re.findall(f"{BEGIN}\n(.*?)\n{END}", PAGE.read_text(encoding="utf-8"), re.S)
    return tables.strip()


def test_page_shows_the_tables_of_the_code():
    assert tables_of_page() == as_markdown().strip()


def test_tables_have_a_row_for_each_rule():
    num_rules = sum(len(rules) for rules in TABLES.values())
    # Each table has two more lines, above its rows.
    lines = [line for line in tables_of_page().splitlines() if line]
    assert len(lines) == num_rules + 2 * len(TABLES)
