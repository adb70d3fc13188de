"""The contrast of the colours in both themes."""

from __future__ import annotations

import pytest

from transom.dashboard.colors import CONTRAST_PAIRS, DARK, LIGHT, contrast, stylesheet


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("foreground", "background", "minimum"),
    CONTRAST_PAIRS,
    ids=[f"{foreground} on {background}" for foreground, background, _ in CONTRAST_PAIRS],
)
def test_a_pair_of_colours_has_the_contrast_that_wcag_aa_requires(theme, foreground, background, minimum):
    assert contrast(theme[foreground], theme[background]) >= minimum


def test_both_themes_have_the_same_colours_and_both_are_in_the_stylesheet():
    assert LIGHT.keys() == DARK.keys()
    text = stylesheet()
    assert all(f"--{name}:{colour};" in text for theme in (LIGHT, DARK) for name, colour in theme.items())
