"""Valid texts of queries and statements, and texts that random edits make of them."""

from __future__ import annotations

import random
import re

SCHEMA = (
    "site int, price double, kind string, amount decimal(10,2), big bigint, seen boolean, day date, "
    "tags array<string>, place struct<x: int, y: string>, scores map<string, double>, ts timestamp"
)

QUERIES = [
    "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]",
    "SELECT site, count(*) AS n, avg(price) FROM bids [RANGE 2 minutes SLIDE 30 seconds] GROUP BY site",
    "SELECT site, sum(price) AS p FROM bids [RANGE 4 minutes SLIDE 1 minute] WHERE price > 1.5e2 AND site IN (1, 2) "
    "GROUP BY site HAVING sum(price) > 0 OR count(*) < 10",
    "SELECT sum(price) AS p FROM bids [ROWS 3 SLIDE 2]",
    "SELECT max(price) - min(price) AS spread FROM bids [RANGE 10 SLIDE 5 WATTR big] WHERE kind LIKE 'a%'",
    "SELECT kind, approx_count_distinct(site), approx_percentile(price, 0.5) FROM bids "
    "[RANGE 1 hour SLIDE 5 minutes] GROUP BY kind",
    "SELECT name, count(*) FROM bids [RANGE 1 minute SLIDE 1 minute] JOIN sites ON bids.site = sites.site "
    "GROUP BY name",
    "SELECT count(*) FILTER (WHERE seen) AS f, stddev(price), var_pop(price) FROM bids [RANGE 1 day SLIDE 1 hour]",
    "SELECT count(*) AS n FROM bids [RANGE 5 min SLIDE 1 min] EMIT EARLY EVERY 10 SECONDS",
    "SELECT sum(price) AS s FROM bids [RANGE 5 min SLIDE 1 min] EMIT EARLY AT 50%, 75% OF SLIDE",
    "SELECT sum(price) AS s FROM bids [RANGE 5 min SLIDE 1 min] EMIT EARLY "
    "WITH ACCURACY 90% BETWEEN 10% AND 90% OF SLIDE",
    "SELECT max(price) AS m FROM bids [RANGE 5 min] USING timegram(64)",
    "SELECT site, max(price) AS m FROM bids [RANGE 5 min] GROUP BY site USING ordered_sharing",
    "SELECT max(price) AS s FROM bids [RANGE 5 min] WITHIN 5% USING timegram(SLICE '1 second')",
    "SELECT approx_count_distinct(site) AS d FROM bids [RANGE 5 minutes SLIDE 1 minute] "
    "WHERE ts > TIMESTAMP '2013-01-01 12:00:00' AND day = DATE '2013-01-01'",
    "SELECT CASE WHEN price > 2 THEN 'high' ELSE kind END AS c, count(*) FROM bids [RANGE 1 min SLIDE 1 min] "
    "GROUP BY CASE WHEN price > 2 THEN 'high' ELSE kind END",
    "SELECT date_trunc('hour', ts + INTERVAL 1 HOUR) AS h, count(1) FROM bids [RANGE 1 day SLIDE 1 day] GROUP BY 1",
    "SELECT element_at(tags, 1) AS t, min(price) FROM bids [RANGE 1 min SLIDE 1 min] GROUP BY 1",
    "SELECT sum(amount * 1.10BD), sum(CAST(kind AS DECIMAL(38, 6))) FROM bids [RANGE 1 min SLIDE 1 min]",
    "SELECT b.kind, sum(b.price) FROM bids AS b [RANGE 1 min SLIDE 1 min] GROUP BY b.kind "
    "ON OVERLOAD PREFER desc price",
    "SELECT sum(n) AS total FROM per_site [RANGE 4 minutes SLIDE 2 minutes]",
    "SELECT site, price FROM bids WITH PREFERENCE desc SUMMARY.Estimate.Count(site) BUDGET 20 PROBES",
    "SELECT avg(price) FROM bids WITH PREFERENCE weighted SUMMARY.Estimate.Count(site) WINDOW '1 minute'",
    "SELECT count(*) AS n FROM bids [RANGE 1 min SLIDE 1 min] "
    "WHERE place.x BETWEEN 1 AND 4 AND scores['a'] IS NOT NULL",
    "SELECT sum(if(price > 1, 1, 0)) / count(*) AS part, concat_ws('-', kind, 'x') FROM bids "
    "[RANGE 90 seconds SLIDE 45 seconds] GROUP BY kind -- of all",
    "SELECT upper(kind) AS u, u || '!' AS v, count(*) AS n, n + 1 AS m FROM bids [RANGE 1 min SLIDE 1 min] "
    "WHERE kind LIKE ANY ('a%', 'b') AND (site, kind) NOT IN ((1, 'a'), (2, 'b')) GROUP BY ALL HAVING n > 1",
    "SELECT scores.a, sum(size(filter(tags, t -> t = kind))) AS n, "
    "max(aggregate(tags, 0, (acc, t) -> acc + length(t))) FROM bids [RANGE 1 min SLIDE 1 min] "
    "WHERE exists(tags, t -> t LIKE 'a%') GROUP BY scores.a",
    "SELECT window_start, window_end, site, count(*) AS n FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), "
    "INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, site",
    "SELECT count(*) AS n FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), "
    "SIZE => INTERVAL '1' HOUR)) t GROUP BY window_start, window_end",
    "SELECT k, sum(d.p) AS s FROM (SELECT kind AS k, price * 2 AS p, ts FROM bids WHERE site > 1) d "
    "[RANGE 1 min SLIDE 1 min] WHERE k LIKE 'a%' GROUP BY k HAVING s > 1",
    "WITH a AS (SELECT *, price + 1 AS more FROM bids), b AS (SELECT more, site FROM a WHERE seen) "
    "SELECT site, max(more) AS m FROM b [RANGE 1 min SLIDE 1 min] GROUP BY site",
    "SELECT site, count(*) AS n FROM bids [SESSION 30 minutes] WHERE price > 1 GROUP BY site HAVING n > 1",
    "SELECT session_window(ts, '30 minutes') AS w, kind, sum(price) AS s FROM bids "
    "GROUP BY session_window(ts, '30 minutes'), kind",
    "SELECT count(*) AS n FROM bids [RANGE 1 month SLIDE 1 month IN TIME ZONE 'Europe/Berlin']",
    "SELECT site, max(price) FROM bids [RANGE 7 days SLIDE 1 day IN TIME ZONE 'Asia/Kolkata'] GROUP BY site",
    "SELECT window_end, sum(price) AS s FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES, "
    "INTERVAL '1' DAY)) GROUP BY window_start, window_end",
    "SELECT site, count(*) AS n, LAG(count(*), 24, 0) OVER WINDOWS AS before FROM bids "
    "[RANGE 1 hour SLIDE 1 hour] GROUP BY site HAVING n > 3 * LAG(count(*)) OVER WINDOWS",
    "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING n = 0 EMIT EMPTY",
    "SELECT a.site, count(*) AS n, sum(b.price) FROM bids a JOIN bids b ON a.site = b.site "
    "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES [RANGE 5 minutes SLIDE 1 minute] "
    "WHERE a.kind = 'x' GROUP BY a.site",
    "SELECT count(*) AS n FROM (SELECT ts, kind FROM bids WHERE site = 1 UNION ALL SELECT ts, kind FROM bids) u "
    "[RANGE 1 minute SLIDE 1 minute]",
    "SELECT tag, count(*) AS n FROM (SELECT ts, explode(tags) AS tag FROM bids) e [RANGE 1 min SLIDE 1 min] "
    "GROUP BY tag",
    "SELECT kind, median(price), count(DISTINCT site), collect_list(big), max_by(kind, price), mode(site) FROM bids "
    "[RANGE 1 min SLIDE 1 min] GROUP BY kind ORDER BY 2 DESC LIMIT 3",
    "SELECT site, count(*) AS n, sum(price) AS s FROM bids [RANGE 5 minutes SLIDE 1 minute] GROUP BY site "
    "HAVING s > 100 AND n BETWEEN 3 AND 9 WITH CONFIDENCE 95% ON OVERLOAD PREFER desc price EMIT EMPTY "
    "EMIT EARLY AT 50% OF SLIDE ALERT FOR 3 WINDOWS RESOLVE AFTER 2 WINDOWS REPEAT EVERY '1 hour' SEVERITY 'page' "
    "SUMMARY '{site}: {n} bids'",
    "SELECT kind, max(price) AS top FROM bids [RANGE 1 hour SLIDE 5 minutes] GROUP BY kind HAVING top > 5 "
    "EMIT CORRECTIONS WITHIN '1 day' EMIT EARLY EVERY '1 minute' ALERT BACKFILL SINCE '24 hours ago'",
    "SELECT site, max(price) FROM bids [RANGE 10 minutes] GROUP BY site AS OF '2013-01-01 12:03:30'",
    "SELECT std(price), mean(amount), percentile_approx(big, array(0.1, 0.9)) FROM bids [RANGE 1 week SLIDE 1 day]",
]

STATEMENTS = [
    "CREATE SUMMARY items ON bids(site) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)",
    "CREATE SUMMARY items ON bids(site) WITH GRANULARITY '1 minute' AND HISTOGRAM(16) BETWEEN 0 AND 9.5",
    "CREATE SUMMARY items ON bids(kind) WITH GRANULARITY '1 minute' AND BUCKETS 64 AND COUNTSKETCH(5, 256)",
    "DROP SUMMARY sites1",
]

# Pieces that are more likely to break something than those of the texts themselves.
ODD = [
    "9" * 400, "9" * 5000, "1e999999999", "1e-999999999", "1e" + "9" * 40, "1e999999999%",
    "1e308.8", "4E", "1e", "1e999", "-1e999", "0x", "0x1F", "1.", ".5", ".", "1..2", "9" * 40, "-0",
    "1_000", "1L", "1S", "(" * 200, "NOT " * 300, "1 + " * 500, "- " * 300, "1Y", "1D", "1F", "1BD",
    "1e5BD", "NaN", "Infinity", "99999999999999999999 years", "0.1", "-1", "INTERVAL 0.1 MINUTES",
    "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL 1", "INTERVAL", "INTERVAL '1 x' DAY", "DATE '2013-13-01'",
    "TIMESTAMP 'x'", "TIMESTAMP '99999-01-01'", "X'1'", "X'GG'", "''", "'", '"', "`", "``", "`a b`", "/*",
    "*/", "--", ";", "\x00", "\ufeff", "é", "😀", "\u2028", "\\", "'\\u12'", "'\\'", "$1", "?", ":a", "@x",
    "#", "(", ")", "[", "]", "((((((((", "))))", "[[", "]]", "{", "}", "{{", "%", "100%", "101%", "-5%",
    "1e2%", "4E%", "0%", "NULL", "TRUE", "*", "bids.*", "a.b.c.d", "SELECT", "FROM", "WHERE", "GROUP BY",
    "HAVING", "RANGE", "SLIDE", "ROWS", "WATTR", "EMIT", "EARLY", "USING", "WITHIN", "WITH", "PREFERENCE",
    "BUDGET", "PROBES", "SUMMARY", "WINDOW", "OVER ()", "DISTINCT", "FILTER (WHERE", "UNION ALL",
    "ORDER BY 1", "LIMIT 4E", "LATERAL VIEW", "JOIN", "ON", "AS", "CASE", "END", "CAST(1 AS",
    "AS DECIMAL(99, 99))", "count(", "sum(", "avg()", "approx_percentile(price, 2)", "current_timestamp()",
    "transform(tags, x -> x)", "explode(tags)", "1 = 1 = 1", "NOT NOT", "BETWEEN 1", "IN ()",
    "LIKE 'a' ESCAPE 'bb'", "::int", "<=>", "||", "->", "=>", ">>", "&", "~", "^", "!", "- - -", "1/0",
    "10 % 0", "x -> x", "(x, y) -> x", "->", "TABLE(", "TUMBLE(", "DESCRIPTOR(", "ANY (", "ALL (", "GROUP BY ALL", ":p",
    "SESSION", "SESSION 0 seconds", "session_window(ts, '1 day')", "IN TIME ZONE 'x'", "1 month", "CUMULATE(", "EMPTY",
    "OVER WINDOWS", "LAG(", "LAG(n, 1e9) OVER WINDOWS", "CREATE VIEW v AS", "INTERVAL 10 MINUTES", "b.ts",
    "GROUPING SETS (()", "ROLLUP (site)", "CUBE (site)", "grouping(site)", "PARTITION BY site", "LEFT ANTI JOIN",
    "LEFT SEMI JOIN", "EXISTS (", "tags.x", "scores.x.y", "(1, 2) IN ((1, 2))", "WITH ROLLUP",
    "WITH x AS (SELECT * FROM bids)", "(SELECT site FROM bids)", "per_site", "sites1", "nowhere",
]  # fmt: skip

_PIECES = re.compile(r"\s+|\w+|'[^']*'|.", re.DOTALL)


def mutated(draw: random.Random, texts: list[str]) -> str:
    """A text after one to six random edits of its pieces."""
    pieces = _PIECES.findall(draw.choice(texts))
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(pieces)) if pieces else 0
        match draw.randrange(9):
            case 0:
                del pieces[at : at + draw.randint(1, 3)]
            case 1:
                pieces[at:at] = pieces[at : at + draw.randint(1, 6)]
            case 2 | 3:
                pieces[at : at + 1] = [draw.choice(ODD)]
            case 4:
                pieces[at:at] = [" ", draw.choice(ODD), " "]
            case 5:
                other = _PIECES.findall(draw.choice(texts))
                start = draw.randrange(len(other))
                pieces[at:at] = other[start : start + draw.randint(1, 12)]
            case 6 if pieces:
                to = draw.randrange(len(pieces))
                pieces[at], pieces[to] = pieces[to], pieces[at]
            case 7 if pieces:
                piece = pieces[at]
                where = draw.randrange(len(piece) + 1)
                pieces[at] = (
                    piece[:where] + chr(draw.choice([0, 9, 39, 46, 48, 69, 233, 8232])) + piece[where + 1 :]
                )
            case _:
                numbers = [i for i, piece in enumerate(pieces) if piece.isdigit()]
                if numbers:
                    pieces[draw.choice(numbers)] = draw.choice(
                        ["0", "4E", "1e308.8", "0.1", "9" * 25, "-1", "1e9"]
                    )
    return "".join(pieces)
