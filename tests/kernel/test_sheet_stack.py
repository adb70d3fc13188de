"""Sheets in stacks: the same slices as sheets one by one."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transom.aggregates.accumulators import Accumulator, Count, CountRows, Extreme, Sum
from transom.kernel.sheet_stack import SheetStack, combine_stacks, empty_stack, stack_shape
from transom.kernel.sheets import combine
from transom.kernel.stacked_sheets import Sheets
from transom.plan.layout import Layout

FLOAT, INT, TEXT = pa.float64(), pa.int64(), pa.string()
ACCUMULATORS: list[tuple[Accumulator, ...]] = [
    (CountRows(),),
    (Sum(INT),),
    (Sum(FLOAT), Count()),
    (Sum(INT), Sum(INT), CountRows()),
    (Extreme(FLOAT, "min"), Extreme(FLOAT, "max")),
    (Extreme(TEXT, "max"), Sum(INT)),
    (Extreme(pa.bool_(), "max"), Extreme(pa.date32(), "min")),
    (),
]
VALUES: dict[pa.DataType, list[Any]] = {
    INT: [-3, 0, 7, None],
    FLOAT: [-1.5, 0.0, float("nan"), float("inf"), None],
    TEXT: ["a", "b", "", None],
    pa.bool_(): [True, False, None],
    pa.date32(): [3, 9, None],
}


def layouts(keys: tuple[pa.DataType, ...]) -> list[Layout]:
    return [Layout("s", keys, accumulators) for accumulators in ACCUMULATORS]


def drawn(dice: Random, layout: Layout, selections: range, size: int) -> pa.Table:
    """Cells in any order; some of them are of the same slice."""
    columns: dict[str, pa.Array] = {}
    for field in layout.schema:
        if field.name == "selection":
            values: list[Any] = [dice.choice(selections) for _ in range(size)]
        elif field.name in ("slice", "stop"):
            values = [dice.randrange(4) * 10 for _ in range(size)]
        elif field.name == "rows" or field.name in counts_of(layout):
            values = [dice.randrange(1, 5) for _ in range(size)]
        else:
            values = [dice.choice(VALUES[field.type]) for _ in range(size)]
        columns[field.name] = pa.array(values, field.type, from_pandas=False)
    return pa.table(columns, schema=layout.schema)


def counts_of(layout: Layout) -> set[str]:
    """The columns of states that are never null."""
    forms = enumerate(layout.forms)
    return {layout.columns(place)[0] for place, form in forms if form is not None and form.counts}


def cells(table: pa.Table) -> list[str]:
    """The rows of a sheet as texts, in which NaN is equal to NaN."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("keys", [(), (TEXT,), (INT, FLOAT)], ids=["no groups", "by text", "by two columns"])
@pytest.mark.parametrize("seed", range(8))
def test_a_stack_has_the_slices_of_its_sheets(keys: tuple[pa.DataType, ...], seed: int) -> None:
    dice = Random(seed)
    every = layouts(keys)
    chosen = dice.sample(every, dice.randint(1, len(every)))
    old, new = (
        {
            layout.id: drawn(dice, layout, range(10 * place, 10 * place + 3), dice.randrange(12))
            for place, layout in enumerate(chosen)
            if dice.random() < 0.8
        }
        for _ in range(2)
    )
    shape, own_shape = stack_shape(chosen), stack_shape(dice.sample(chosen, len(chosen)))
    parts = [
        SheetStack.of(each, [tables.get(layout.id, layout.empty) for layout in each.layouts])
        for each, tables in ((shape, old), (own_shape, new))
    ]
    stack = combine_stacks(shape, parts)
    for number, layout in enumerate(shape.layouts):
        tables = [tables[layout.id] for tables in (old, new) if layout.id in tables]
        table = stack.table(number)
        table.validate(full=True)
        assert table.schema == layout.schema
        assert table["selection"].to_pylist() == sorted(table["selection"].to_pylist())
        assert cells(table) == cells(combine(layout, tables)), "as if the sheet were alone"
        assert len(table) == len({(r["selection"], r["slice"], *group(r)) for r in table.to_pylist()})
        assert sum(table["rows"].to_pylist()) == sum(sum(each["rows"].to_pylist()) for each in tables)


def group(row: dict[str, Any]) -> list[str]:
    return [repr(value) for name, value in row.items() if name.startswith("k")]


@pytest.mark.parametrize("seed", range(5))
def test_a_stack_with_some_of_its_cells_has_those_of_its_sheets(seed: int) -> None:
    dice = Random(seed)
    chosen = layouts((TEXT,))
    shape = stack_shape(chosen)
    tables = [drawn(dice, layout, range(place, place + 1), 9) for place, layout in enumerate(chosen)]
    stack = combine_stacks(shape, [SheetStack.of(shape, tables)])
    is_kept = np.array([dice.random() < 0.5 for _ in range(len(stack))])
    left = stack.where(is_kept)
    for number in range(len(chosen)):
        start, stop = stack.offsets[number : number + 2]
        expected = stack.table(number).filter(pa.array(is_kept[start:stop]))
        assert repr(left.table(number).to_pylist()) == repr(expected.to_pylist())
        assert repr(left.alone(number).table(0).to_pylist()) == repr(expected.to_pylist())
    assert left.groups is not None and len(left.groups) == len(left)


def test_the_same_layouts_have_one_shape_and_an_empty_stack_has_empty_sheets() -> None:
    some = layouts(())[:3]
    shape = stack_shape(some)
    assert stack_shape(some) is shape and stack_shape(some[::-1]) is not shape
    assert pickle.loads(pickle.dumps(shape)).sheets == shape.sheets
    empty = empty_stack(shape)
    assert [empty.table(number) for number in range(3)] == [layout.empty for layout in some]
    assert len(combine_stacks(shape, [empty, empty])) == 0


# --- sheets of a state ---


def sheet(layout: Layout, *selections: int) -> pa.Table:
    return combine(layout, [drawn(Random(each), layout, range(each, each + 1), 3) for each in selections])


def texts(sheets: Sheets) -> dict[str, list[str]]:
    return {name: cells(table) for name, table in sheets.items()}


def test_sheets_in_stacks_are_tables_for_their_readers() -> None:
    first, second, third = layouts((TEXT,))[:3]
    tables = {layout.id: sheet(layout, place) for place, layout in enumerate((first, second, third))}
    shape = stack_shape([second, third])
    stack, others = Sheets(tables).taken(shape)
    assert list(others) == [first.id] and len(stack) == sum(len(tables[each.id]) for each in (second, third))
    sheets = others.with_stack(stack)
    assert texts(sheets) == texts(Sheets(tables)) and sheets.cells == Sheets(tables).cells
    assert sheets.taken(shape)[0] is stack, "nothing is copied while the shape is the same"
    assert texts(pickle.loads(pickle.dumps(sheets))) == texts(sheets)
    assert len(sheets) == 3 and third.id in sheets and "another" not in sheets
    assert Sheets.of(sheets) is sheets and not Sheets()


def test_a_table_replaces_a_sheet_of_a_stack() -> None:
    first, second = layouts(())[:2]
    shape = stack_shape([first, second])
    stack, others = Sheets({first.id: sheet(first, 1), second.id: sheet(second, 2)}).taken(shape)
    replaced = others.with_stack(stack).with_tables({second.id: sheet(second, 2, 3)})
    assert cells(replaced[second.id]) == cells(sheet(second, 2, 3))
    again, left = replaced.taken(shape)
    assert not left, "a sheet that is in the stack is not a table as well"
    assert cells(again.table(1)) == cells(sheet(second, 2, 3)) and cells(again.table(0)) == cells(
        sheet(first, 1)
    )
    assert list(replaced.without([first.id])) == [second.id]


def test_a_stack_moves_to_a_shape_with_other_sheets() -> None:
    first, second, third = layouts((INT,))[:3]
    stack, _ = Sheets({first.id: sheet(first, 1), second.id: sheet(second, 2)}).taken(
        stack_shape([first, second])
    )
    sheets = Sheets(stacks=[stack])
    wider, left = sheets.taken(stack_shape([third, second, first]))
    assert not left and texts(Sheets(stacks=[wider])) == texts(sheets)
    narrower, left = sheets.taken(stack_shape([second, third]))
    assert list(left) == [first.id] and texts(Sheets(stacks=[narrower])) == {
        second.id: texts(sheets)[second.id]
    }


def test_a_stack_keeps_its_cells_in_a_shape_with_more_sheets_in_the_same_order() -> None:
    first, second, third, fourth = layouts((TEXT,))[:4]
    stack, _ = Sheets({first.id: sheet(first, 1), third.id: sheet(third, 3)}).taken(
        stack_shape([first, third])
    )
    moved, _ = Sheets(stacks=[stack]).taken(stack_shape([second, first, fourth, third]))
    assert moved.selections is stack.selections, "nothing is sorted or copied"
    assert texts(Sheets(stacks=[moved])) == texts(Sheets(stacks=[stack]))
    assert [moved.table(number).num_rows for number in (0, 2)] == [0, 0]
    assert stack.reshaped(stack_shape([third, first])) is None
    back, _ = Sheets(stacks=[moved]).taken(stack_shape([first, third]))
    assert back.selections is stack.selections and texts(Sheets(stacks=[back])) == texts(
        Sheets(stacks=[stack])
    )


def test_selections_leave_stacks_and_tables() -> None:
    first, second, third = layouts(())[:3]
    tables = {first.id: sheet(first, 1, 2), second.id: sheet(second, 3), third.id: sheet(third, 4, 5)}
    stack, others = Sheets(tables).taken(stack_shape([first, second]))
    sheets = others.with_stack(stack)
    left = sheets.without_selections({first.id: [1], second.id: [3], third.id: [4, 5]})
    assert texts(left) == {first.id: cells(sheet(first, 2))}
    assert [numbers.tolist() for numbers, *_ in sheets.slices_of([first.id])] == [stack.selections.tolist()]
    assert sorted({int(home) for homes in sheets.selections() for home in homes}) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_added_to_sheets_stay_in_their_stacks(seed: int) -> None:
    dice = Random(seed)
    chosen = layouts((TEXT,))
    shape = stack_shape(dice.sample(chosen, dice.randint(1, len(chosen))))
    held = {layout.id: sheet(layout, place) for place, layout in enumerate(shape.layouts)}
    stack, others = Sheets(held).taken(shape)
    is_stacked = dice.random() < 0.8
    sheets = others.with_stack(stack) if is_stacked else Sheets(held)
    adding = {layout.id: layout for layout in dice.sample(chosen, 3)}
    rows = {
        layout.id: [sheet(layout, 50 + place) for place in range(dice.randrange(3))]
        for layout in adding.values()
    }
    expected = dict(held)
    for name, tables in rows.items():
        combined = combine(adding[name], [*([held[name]] if name in held else []), *tables])
        if combined.num_rows:
            expected[name] = combined
    after = sheets.with_rows(adding, rows)
    assert texts(after) == texts(Sheets(expected))
    assert not is_stacked or not after.tables
    for name, table in after.items():
        assert table["selection"].to_pylist() == expected[name]["selection"].to_pylist()
