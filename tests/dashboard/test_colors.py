"""The colours can be told apart, in both themes."""

from __future__ import annotations

import pytest

from transom.dashboard.colors import DARK, LIGHT, PAIRS, contrast, stylesheet


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper", "least"), PAIRS, ids=[f"{ink} on {paper}" for ink, paper, _ in PAIRS]
)
def test_a_pair_of_colours_has_the_contrast_that_wcag_aa_asks_for(theme, ink, paper, least):
    assert contrast(theme[ink], theme[paper]) >= least


def test_both_themes_have_the_same_colours_and_both_are_in_the_stylesheet():
    assert LIGHT.keys() == DARK.keys()
    text = stylesheet()
    assert all(f"--{name}:{colour};" in text for theme in (LIGHT, DARK) for name, colour in theme.items())
