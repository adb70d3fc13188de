"""Texts of window queries over the trading catalog, generated from a small grammar, with constants to be filled in."""

from __future__ import annotations

import random
import re

NUMBERS = ("0", "1", "2", "5", "7.5", "1e3", "12345678901")
WORDS = ("'a'", "'b%'", "''", "'it''s'", "'2020-01-01'")
_HOLE = re.compile(r"#|\$")

ROW_NUMBERS = (
    "volume",
    "price",
    "site",
    "cost",
    "volume % #",
    "price * #",
    "site + #",
    "abs(price - #)",
    "-volume",
)
ROW_TEXTS = ("symbol", "lower(symbol)", "symbol || $", "lower(symbol) || $", "concat(symbol, $)")
KEYS = (
    "site", "symbol", "live", "volume > #", "price <= #", "site IN (#, #)", "symbol LIKE $", "volume % #",
    "site BETWEEN # AND #", "lower(symbol)", "symbol || $", "symbol IS NULL", "NOT live", "volume > # AND live",
    "spot.lat", "tags[#]", "site & #", "CASE WHEN volume > # THEN $ ELSE symbol END", "cast(price AS int)",
    "if(live, #, #)",
)  # fmt: skip
AGGREGATES = (
    "count(*)",
    "count({})",
    "sum({})",
    "avg({})",
    "max({})",
    "min({})",
    "approx_percentile({}, 0.#)",
)
OPERATORS = (">", "<=", "=", "!=", "<=>")


class TextMaker:
    """Makes texts with `#` where a number and `$` where a text belongs."""

    def __init__(self, draw: random.Random):
        self.draw = draw

    def number(self) -> str:
        return self.draw.choice(ROW_NUMBERS)

    def condition(self) -> str:
        draw, depth = self.draw, self.draw.random()
        if depth < 0.2:
            return f"({self.condition()} {draw.choice(['AND', 'OR'])} {self.condition()})"
        if depth < 0.3:
            return f"NOT ({self.condition()})"
        return draw.choice(
            [
                f"{self.number()} {draw.choice(OPERATORS)} #",
                f"# {draw.choice(OPERATORS)} {self.number()}",
                f"{self.number()} BETWEEN # AND #",
                f"{self.number()} IN (#, #, NULL)",
                f"{draw.choice(ROW_TEXTS)} LIKE $",
                f"{draw.choice(ROW_TEXTS)} IN ($, $)",
                "live",
                "day >= DATE '2020-01-01'",
                "ts > $",
            ]
        )

    def aggregate(self) -> str:
        call = self.draw.choice(AGGREGATES).format(self.number())
        return f"{call} FILTER (WHERE {self.condition()})" if self.draw.random() < 0.15 else call

    def text(self) -> str:
        draw = self.draw
        keys = draw.sample(KEYS, draw.randint(0, 2))
        items = [f"{key} AS g{at}" for at, key in enumerate(keys) if draw.random() < 0.7]
        used = [f"`{item.rpartition(' AS ')[2]}`" for item in items]
        items += [f"{key} || '!' AS h{at}" for at, key in enumerate(keys) if draw.random() < 0.2]
        aggregates = [f"a{at}" for at in range(draw.randint(1, 3))]
        items += [f"{self.aggregate()} AS {name}" for name in aggregates]
        if draw.random() < 0.3:
            items.append(f"{self.aggregate()} / # AS m")
        where = f" WHERE {self.condition()}" if draw.random() < 0.6 else ""
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        left = [*aggregates, *used, *keys, "sum(volume)", "window_start"]
        having = f" HAVING {draw.choice(left)} {draw.choice(OPERATORS)} #" if draw.random() < 0.6 else ""
        window = draw.choice(["[RANGE # min SLIDE # min]", "[ROWS # SLIDE #]", "[RANGE '# s' SLIDE '1 min']"])
        return f"SELECT {', '.join(items)} FROM Trades T {window}{where}{group}{having}"

    def filled(self, text: str) -> str:
        """A text with constants of its own."""
        return _HOLE.sub(lambda hole: self.draw.choice(NUMBERS if hole[0] == "#" else WORDS), text)
