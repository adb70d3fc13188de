"""A program adds its own aggregates to the table, and queries use them like the built-in ones."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cmp_to_key, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.aggregates import test_laws, test_lower
from tests.aggregates.laws import accumulators, readings
from tests.results.pure_batches import Pure
from transom.aggregates import table
from transom.aggregates.accumulators import AccumulatorTraits, Codes, Extreme, States, reduce_groups
from transom.aggregates.table import AggregateFunction, Parameters
from transom.errors import SettingError, SQLError
from transom.oracle.aggregates import TEXTBOOK
from transom.sql.interpreter.values import order


@dataclass(frozen=True)
class Product:
    """The product of the values that are not null; null when there are none."""

    traits: ClassVar = AccumulatorTraits()

    @property
    def label(self) -> str:
        return "product"

    @property
    def id(self) -> str:
        return "product"

    def types(self) -> list[pa.DataType]:
        return [pa.float64()]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        return self.combine([values.cast(pa.float64(), safe=False)], codes, groups)

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        return [reduce_groups(states[0], codes, groups, "product")]


def _double(kind: pa.DataType | None, parameters: Parameters) -> pa.DataType | str:
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return pa.float64() if numeric else f"needs a number, and this is {kind}"


PRODUCT = AggregateFunction(
    name="product",
    aliases=("prod",),
    result_type=_double,
    accumulators=lambda kind, parameters: (Product(),),
    lower=lambda states, type, parameters: states[0][0],
    with_preference=True,
)
SPREAD = AggregateFunction(
    name="spread",
    result_type=_double,
    accumulators=lambda kind, parameters: (Extreme(kind, "max"), Extreme(kind, "min")),
    lower=lambda states, type, parameters: pc.subtract(
        *(state[0].cast(pa.float64(), safe=False) for state in states)
    ),
)
SQL = "SELECT g, product(x) AS p, prod(x) FILTER (WHERE x > 1) AS q, spread(x) AS d, max(x) AS m"


least, greatest = (partial(choose, key=cmp_to_key(order)) for choose in (min, max))  # NaN is above all


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for function in (PRODUCT, SPREAD):
        table.register_aggregate(function)
    monkeypatch.setitem(TEXTBOOK, "product", lambda values, call: math.prod(map(float, values)))
    monkeypatch.setitem(TEXTBOOK, "spread", lambda values, call: float(greatest(values) - least(values)))
    for found in (accumulators, readings):
        found.cache_clear()  # without the new functions
    yield
    for function in (PRODUCT, SPREAD):
        table.unregister_aggregate(function.name)
    for found in (accumulators, readings):
        found.cache_clear()


def plain(rows: list[tuple[int, str, int | None]], start: int, end: int) -> list[dict[str, object]]:
    """The answer of the query for one window, recomputed from its rows."""
    rows_of_window = []
    for key in sorted({g for t, g, _ in rows if start <= t < end}):
        values = [float(x) for t, g, x in rows if g == key and start <= t < end and x is not None]
        large = [value for value in values if value > 1]
        rows_of_window.append(
            {
                "g": key,
                "p": math.prod(values) if values else None,
                "q": math.prod(large) if large else None,
                "d": max(values) - min(values) if values else None,
                "m": int(max(values)) if values else None,
            }
        )
    return rows_of_window


@pytest.mark.usefixtures("extended")
@pytest.mark.parametrize("window", [(10, 5), (12, 5), (5, 5), (3, 5)])
def test_a_registered_aggregate_gives_what_a_recomputation_gives(window: tuple[int, int]) -> None:
    range_, slide = window
    rng = np.random.default_rng(20)
    xs = [None if x > 8 else int(x) for x in rng.integers(-3, 10, 60)]
    rows = [(t, "ab"[int(g)], x) for t, g, x in zip(range(60), rng.integers(0, 2, 60), xs, strict=True)]
    text = f"{SQL} FROM s [RANGE {range_} SLIDE {slide}] GROUP BY g"
    pure = Pure({"q": text}, {"g": pa.string(), "x": pa.int32()}, slack=0)
    for start in range(0, 60, 13):  # batches end inside of windows
        pure.batch(rows[start : start + 13])
    pure.batch(ended=True)
    results: dict[int, list[dict[str, object]]] = {}
    for _, row in pure.results:
        results.setdefault(row["window_end"], []).append(
            {name: row[name] for name in ("g", "p", "q", "d", "m")}
        )
    expected = {end: plain(rows, end - range_, end) for end in range(slide, 60 + range_ + slide, slide)}
    assert {end: sorted(window, key=lambda row: str(row["g"])) for end, window in results.items()} == {
        end: window for end, window in expected.items() if window
    }


@pytest.mark.usefixtures("extended")
def test_a_registered_aggregate_can_be_looked_up() -> None:
    pure = Pure({"q": "SELECT product(x) AS p, spread(x) AS d FROM s [RANGE 3]"}, {"x": pa.float64()})
    pure.batch([(1, 2.0), (2, 3.0), (3, 5.0), (4, 7.0)])
    (row,) = pure.lookup("q")
    assert (row["p"], row["d"]) == (105.0, 4.0)


@pytest.mark.usefixtures("extended")
def test_functions_that_need_equal_accumulators_share_them() -> None:
    pure = Pure({"q": f"{SQL} FROM s [RANGE 10 SLIDE 5] GROUP BY g"}, {"g": pa.string(), "x": pa.int32()})
    kept = [(slot.accumulator.label, slot.where is None) for slot in pure.living["q"].slots]
    assert sorted(kept) == [("max", True), ("min", True), ("product", False), ("product", True)]


@pytest.mark.usefixtures("extended")
def test_the_laws_hold_for_registered_aggregates() -> None:
    products = [
        (accumulator, kind) for accumulator, kind in accumulators() if isinstance(accumulator, Product)
    ]
    assert len(products) > 4
    laws = [
        law
        for name, law in vars(test_laws).items()
        if name.startswith("test_") and hasattr(law, "pytestmark")
    ]
    assert len(laws) == 9
    for law in laws:
        for accumulator, kind in products:
            law(accumulator=accumulator, kind=kind)
    test_laws.test_every_registered_function_takes_some_input_type()
    test_laws.test_the_value_over_no_rows_is_lowered_from_the_identities()
    test_lower.test_every_function_gives_what_the_oracle_gives(seed=9)


@pytest.mark.usefixtures("extended")
def test_an_argument_that_it_does_not_take_is_refused() -> None:
    with pytest.raises((SQLError, AssertionError), match="spread needs a number, and this is string"):
        Pure({"q": "SELECT spread(x) FROM s [RANGE 3 SLIDE 1]"}, {"x": pa.string()})


def test_without_registration_the_function_is_unknown() -> None:
    with pytest.raises((SQLError, AssertionError), match="unknown function spread"):
        Pure({"q": "SELECT spread(x) FROM s [RANGE 3 SLIDE 1]"}, {"x": pa.int32()})


@pytest.mark.parametrize(
    ("name", "aliases", "message"),
    [
        pytest.param("sum", (), "there is an aggregate sum already", id="a built-in name"),
        pytest.param("total", ("mean",), "there is an aggregate mean already", id="a built-in alias"),
        pytest.param("Total", (), "can't name an aggregate", id="a capital letter"),
        pytest.param("my total", (), "can't name an aggregate", id="two words"),
    ],
)
def test_a_name_that_is_taken_or_no_name_is_refused(
    name: str, aliases: tuple[str, ...], message: str
) -> None:
    function = AggregateFunction(name, _double, PRODUCT.accumulators, PRODUCT.lower, aliases)
    with pytest.raises(SettingError, match=message):
        table.register_aggregate(function)
    assert "total" not in table.window_function_names()


def test_a_function_travels_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(table.aggregate_function("avg"))) is table.aggregate_function("avg")


def test_an_executor_imports_the_module_that_registers_a_function(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "my_aggregates.py").write_text(
        "from transom.aggregates import table\n"
        "sum = table.aggregate_function('sum')\n"
        "def lower(states, type, parameters):\n"
        "    return sum.lower(states, type, parameters)\n"
        "TOTAL = table.register_aggregate(table.AggregateFunction('total', sum.result_type, sum.accumulators, lower))\n"
    )
    paths = [str(folder), *sys.path]
    begin = f"import pickle, sys; sys.path[:] = {paths!r}; "
    pack = begin + "import my_aggregates; print(pickle.dumps(my_aggregates.TOTAL).hex())"
    packed = subprocess.run([sys.executable, "-c", pack], capture_output=True, text=True, check=True).stdout
    unpack = begin + f"print(pickle.loads(bytes.fromhex({packed.strip()!r})).name)"
    results = subprocess.run(
        [sys.executable, "-c", unpack], capture_output=True, text=True, check=True
    ).stdout
    assert results.strip() == "total"
