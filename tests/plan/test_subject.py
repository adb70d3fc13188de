"""What a choice is about has a text that people read and checkpoints store."""

from __future__ import annotations

import pytest

from transom.plan.subject import Subject


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (Subject.query("selection 3, odd"), "query selection 3, odd"),
        (Subject.selections([3]), "selection 3"),
        (Subject.selections([3, 12]), "selections 3, 12"),
        (Subject.families([1]), "family 1"),
        (Subject.families([1, 4]), "families 1, 4"),
        (Subject.stores("bids | `a` | `b`, `c`"), "stores of bids | `a` | `b`, `c`"),
        (Subject.summary("items"), "summary items"),
    ],
)
def test_the_subject_is_restored_from_its_text(subject: Subject, text: str) -> None:
    assert str(subject) == text
    assert Subject.restored(text) == subject


def test_a_text_that_names_no_subject_is_refused() -> None:
    with pytest.raises(ValueError, match="not the text of a subject: 'weather'"):
        Subject.restored("weather")


def test_a_subject_of_several_names_is_one_of_each() -> None:
    assert list(Subject.families([1, 4])) == [Subject.families([1]), Subject.families([4])]
