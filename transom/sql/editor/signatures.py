"""The signatures of functions, as an editor shows them: what a function takes, and what it returns in a few words.

The aggregates and scalar functions themselves are in `transom.aggregates.table` and `transom.sql.functions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from transom.aggregates.table import window_function_names
from transom.sql.functions import ALLOWED

OF_THE_PROGRAM = "registered by the program"


@dataclass(frozen=True)
class Signature:
    """A function's name, a call of it as it is written, and what it returns."""

    name: str
    call: str
    meaning: str = ""
    is_aggregate: bool = False

    @property
    def takes_arguments(self) -> bool:
        return not self.call.endswith("()")


_AGGREGATES = """
any(condition) | whether it is true for at least one row
any_value(x) | the value in the first row by time
approx_count_distinct(x[, rsd]) | about how many distinct values, within the relative error rsd
approx_percentile(x, p[, accuracy]) | about the value below which the share p of the rows lies
approx_top_k(x[, k[, maxItemsTracked]]) | the k most frequent values and their counts
array_agg(x) | the values in the order of time
avg(x) | the average
bool_and(condition) | whether it is true for all rows
bool_or(condition) | whether it is true for at least one row
collect_list(x) | the values in the order of time
collect_set(x) | the distinct values in their order
corr(y, x) | the correlation
count(*) | the number of rows; count(x) counts rows where x is not null, count(DISTINCT x) distinct values
count_if(condition) | the rows for which the condition is true
covar_pop(y, x) | the covariance
covar_samp(y, x) | the covariance of a sample
every(condition) | whether it is true for all rows
first(x) | the value in the first row by time
first_value(x) | the value in the first row by time
histogram_numeric(x, nb) | at most nb bins with the mean and the number of their values
hll_sketch_agg(x[, lgConfigK]) | a sketch of the distinct values
kurtosis(x) | the excess kurtosis
last(x) | the value in the last row by time
last_value(x) | the value in the last row by time
listagg(x[, delimiter]) | the texts, joined in the order of time
max(x) | the greatest value
max_by(x, y) | the x of the row with the greatest y
mean(x) | the average
median(x) | the middle value, exact
min(x) | the least value
min_by(x, y) | the x of the row with the least y
mode(x) | the most frequent value
percentile(x, p) | the value below which the share p of the rows lies, exact and interpolated
percentile_approx(x, p[, accuracy]) | about the value below which the share p of the rows lies
percentile_cont(p) WITHIN GROUP (ORDER BY x) | the value below which the share p of the rows lies, interpolated
percentile_disc(p) WITHIN GROUP (ORDER BY x) | the first value up to which the share p of the rows lies
regr_avgx(y, x) | the average of x
regr_avgy(y, x) | the average of y
regr_count(y, x) | the rows in which neither is null
regr_intercept(y, x) | where the line through the points meets the y axis
regr_r2(y, x) | how well the line through the points fits
regr_slope(y, x) | the slope of the line through the points
regr_sxx(y, x) | the sum of the squares of x about its average
regr_sxy(y, x) | the sum of the products of x and y about their averages
regr_syy(y, x) | the sum of the squares of y about its average
skewness(x) | the skewness
some(condition) | whether it is true for at least one row
std(x) | the standard deviation of a sample
stddev(x) | the standard deviation of a sample
stddev_pop(x) | the standard deviation
stddev_samp(x) | the standard deviation of a sample
string_agg(x[, delimiter]) | the texts, joined in the order of time
sum(x) | the sum
var_pop(x) | the variance
var_samp(x) | the variance of a sample
variance(x) | the variance of a sample
"""

_SCALARS = """
abs(x) | the absolute value
acos(x) | the arc cosine
acosh(x) | the inverse hyperbolic cosine
add_months(date, months) | the date so many months later
aggregate(array, start, (acc, x) -> ...[, acc -> ...]) | the elements of an array, combined one after the other
array(x, ...) | an array of values
array_append(array, x) | the array and one more element
array_compact(array) | the array without nulls
array_contains(array, x) | whether an array has an element
array_distinct(array) | the array without repetitions
array_except(a, b) | the elements of a that are not in b
array_insert(array, position, x) | the array with an element at a position
array_intersect(a, b) | the elements that are in both
array_join(array, delimiter[, null]) | the elements as one text
array_max(array) | the greatest element
array_min(array) | the least element
array_position(array, x) | the position of an element, from 1; 0 if it is missing
array_prepend(array, x) | the array with an element before the others
array_remove(array, x) | the array without an element
array_repeat(x, n) | an array of n times x
array_size(array) | the number of elements
array_union(a, b) | the elements that are in either
arrays_overlap(a, b) | whether the arrays have an element in common
arrays_zip(a, b, ...) | an array of structs, one for each position
ascii(text) | the code of the first character
asin(x) | the arc sine
asinh(x) | the inverse hyperbolic sine
atan(x) | the arc tangent
atan2(y, x) | the angle of a point
atanh(x) | the inverse hyperbolic tangent
base64(binary) | bytes as text
bigint(x) | a cast
bin(x) | a number in binary
binary(x) | a cast
bit_count(x) | the number of bits that are set
bit_get(x, position) | one bit
bit_length(text) | the length in bits
boolean(x) | a cast
bround(x[, digits]) | rounded, half to even
btrim(text[, characters]) | the text without these characters at both ends
cardinality(collection) | the size of an array or a map
cast(x AS type) | the value in another type; null if that fails
cbrt(x) | the cube root
ceil(x) | the least integer that is not less
ceiling(x) | the least integer that is not less
char(code) | a character by its code
char_length(text) | the length in characters
character_length(text) | the length in characters
chr(code) | a character by its code
coalesce(x, y, ...) | the first value that is not null
collate(text, collation) | the text with another collation
concat(x, y, ...) | texts or arrays, one after the other
concat_ws(delimiter, x, ...) | texts, joined with a delimiter
contains(text, part) | whether a text has a part
conv(number, from, to) | a number in another base
convert_timezone([from, ]to, timestamp) | a time in another time zone
cos(x) | the cosine
cosh(x) | the hyperbolic cosine
cot(x) | the cotangent
crc32(binary) | a checksum
csc(x) | the cosecant
current_date() | the date of the batch
current_timestamp() | the time of the batch
date(x) | a cast
date_add(date, days) | the date so many days later
date_diff(end, start) | the days between two dates
date_format(timestamp, format) | a time as text
date_from_unix_date(days) | the date so many days after 1970-01-01
date_part(field, timestamp) | a part of a time, such as 'hour'
date_sub(date, days) | the date so many days earlier
date_trunc(unit, timestamp) | the beginning of the hour, day, ... of a time
dateadd(date, days) | the date so many days later
datediff(end, start) | the days between two dates
datepart(field, timestamp) | a part of a time, such as 'hour'
day(date) | the day of the month
dayname(date) | the name of the day
dayofmonth(date) | the day of the month
dayofweek(date) | the day of the week, from 1 for Sunday
dayofyear(date) | the day of the year
decimal(x) | a cast
decode(binary, charset) | bytes as text; or decode(x, a, result, ..., otherwise)
degrees(x) | radians as degrees
double(x) | a cast
e() | Euler's number
element_at(collection, key) | an element of an array, from 1, or the value of a key
elt(n, x, y, ...) | the n-th of the following values
encode(text, charset) | a text as bytes
endswith(text, end) | whether a text ends so
equal_null(x, y) | whether two values are equal, where nulls are
exists(array, x -> ...) | whether a condition holds for an element
exp(x) | e to the power of x
expm1(x) | exp(x) - 1
extract(field FROM timestamp) | a part of a time, such as HOUR
factorial(x) | the factorial
filter(array, x -> ...) | the elements for which a condition holds
find_in_set(text, list) | the position in a list with commas
flatten(array) | an array of arrays as one array
float(x) | a cast
floor(x) | the greatest integer that is not greater
forall(array, x -> ...) | whether a condition holds for all elements
format_number(x, digits) | a number as text, with commas
format_string(format, x, ...) | printf
from_csv(text, schema) | a line of CSV as a struct
from_json(text, schema) | JSON as a struct, an array or a map
from_unixtime(seconds[, format]) | seconds since 1970 as text
from_utc_timestamp(timestamp, zone) | a time in UTC as local time
get(array, index) | an element, from 0
get_json_object(text, path) | a value in JSON, such as '$.user.name'
getbit(x, position) | one bit
greatest(x, y, ...) | the greatest of the values
hash(x, ...) | a hash of 32 bits
hex(x) | a number or bytes in hexadecimal
hll_sketch_estimate(sketch) | about how many distinct values a sketch has seen
hour(timestamp) | the hour
hypot(x, y) | the length of a vector
if(condition, x, y) | x if the condition is true, else y
ifnull(x, y) | x, or y if it is null
ilike(text, pattern) | LIKE that ignores case
initcap(text) | words with capital first letters
instr(text, part) | the position of a part, from 1; 0 if it is missing
int(x) | a cast
is_valid_utf8(text) | whether a text is valid
isnan(x) | whether it is NaN
isnotnull(x) | whether it is not null
isnull(x) | whether it is null
json_array_length(text) | the number of elements of a JSON array
json_object_keys(text) | the keys of a JSON object
last_day(date) | the last day of the month
lcase(text) | the text in lower case
least(x, y, ...) | the least of the values
left(text, n) | the first n characters
len(text) | the length in characters
length(text) | the length in characters
levenshtein(a, b) | the number of edits between two texts
like(text, pattern) | whether a text matches, where % is any text and _ any character
ln(x) | the natural logarithm
locate(part, text[, from]) | the position of a part, from 1; 0 if it is missing
log(base, x) | the logarithm
log10(x) | the logarithm to the base 10
log1p(x) | ln(1 + x)
log2(x) | the logarithm to the base 2
lower(text) | the text in lower case
lpad(text, n[, pad]) | the text, filled up at the left
ltrim(text) | the text without leading spaces
luhn_check(text) | whether a number of a card is valid
make_date(year, month, day) | a date
make_dt_interval([days[, hours[, minutes[, seconds]]]]) | an interval of days and time
make_interval([years[, months[, weeks[, days[, hours[, minutes[, seconds]]]]]]]) | an interval
make_timestamp(year, month, day, hour, minute, second[, zone]) | a time
make_timestamp_ltz(year, month, day, hour, minute, second[, zone]) | a time
make_timestamp_ntz(year, month, day, hour, minute, second) | a time without time zone
make_valid_utf8(text) | the text with invalid bytes replaced
make_ym_interval([years[, months]]) | an interval of months
map(key, value, ...) | a map
map_concat(a, b, ...) | the entries of all maps
map_contains_key(map, key) | whether a map has a key
map_entries(map) | an array of the entries
map_filter(map, (k, v) -> ...) | the entries for which a condition holds
map_from_arrays(keys, values) | a map
map_from_entries(entries) | a map
map_keys(map) | the keys
map_values(map) | the values
map_zip_with(a, b, (k, x, y) -> ...) | a map of the keys of both
mask(text[, upper[, lower[, digit]]]) | the text with letters and digits hidden
md5(binary) | a checksum of 128 bits
minute(timestamp) | the minute
mod(x, y) | the remainder
month(date) | the month
monthname(date) | the name of the month
months_between(end, start) | the months between two times
named_struct(name, value, ...) | a struct
nanvl(x, y) | x, or y if it is NaN
negative(x) | -x
next_day(date, weekday) | the next such day
now() | the time of the batch
nullif(x, y) | null if the values are equal, else x
nullifzero(x) | null if it is zero
nvl(x, y) | x, or y if it is null
nvl2(x, y, z) | y if x is not null, else z
octet_length(text) | the length in bytes
overlay(text PLACING part FROM position) | the text with a part replaced
parse_url(url, part[, key]) | a part of a URL, such as 'HOST'
pi() | pi
pmod(x, y) | the remainder, never negative
position(part IN text) | the position of a part, from 1; 0 if it is missing
positive(x) | x
pow(x, y) | x to the power of y
power(x, y) | x to the power of y
printf(format, x, ...) | a formatted text
quarter(date) | the quarter
radians(x) | degrees as radians
reduce(array, start, (acc, x) -> ...[, acc -> ...]) | the elements of an array, combined one after the other
regexp(text, pattern) | whether a text matches a regular expression
regexp_count(text, pattern) | how often a regular expression matches
regexp_extract(text, pattern[, group]) | what a group of a regular expression matches
regexp_extract_all(text, pattern[, group]) | all that a group matches
regexp_instr(text, pattern) | where a regular expression matches, from 1
regexp_like(text, pattern) | whether a text matches a regular expression
regexp_replace(text, pattern, by) | the text with all matches replaced
regexp_substr(text, pattern) | the first match
repeat(text, n) | the text n times
replace(text, part[, by]) | the text with a part replaced
reverse(x) | a text or an array backwards
right(text, n) | the last n characters
rint(x) | the nearest integer, as a double
rlike(text, pattern) | whether a text matches a regular expression
round(x[, digits]) | rounded, half away from zero
rpad(text, n[, pad]) | the text, filled up at the right
rtrim(text) | the text without trailing spaces
schema_of_csv(text) | the schema of a line of CSV
schema_of_json(text) | the schema of JSON
sec(x) | the secant
second(timestamp) | the second
sentences(text) | the words of each sentence
sequence(start, stop[, step]) | an array from start to stop
sha(binary) | a checksum of 160 bits
sha1(binary) | a checksum of 160 bits
sha2(binary, bits) | a checksum of 224, 256, 384 or 512 bits
shiftleft(x, bits) | shifted to the left
shiftright(x, bits) | shifted to the right
shiftrightunsigned(x, bits) | shifted to the right, filled with zeros
sign(x) | -1, 0 or 1
signum(x) | -1, 0 or 1
sin(x) | the sine
sinh(x) | the hyperbolic sine
size(collection) | the size of an array or a map
slice(array, start, length) | a part of an array, from 1
smallint(x) | a cast
sort_array(array[, ascending]) | the array in order
soundex(text) | a code of how a name sounds
space(n) | n spaces
split(text, pattern[, limit]) | the parts between matches
split_part(text, delimiter, n) | the n-th part
sqrt(x) | the square root
startswith(text, start) | whether a text begins so
str_to_map(text[, pairs[, values]]) | a text such as 'a:1,b:2' as a map
string(x) | a cast
struct(x, ...) | a struct
substr(text, start[, length]) | a part of a text, from 1
substring(text, start[, length]) | a part of a text, from 1
substring_index(text, delimiter, count) | the text before the count-th delimiter
tan(x) | the tangent
tanh(x) | the hyperbolic tangent
timestamp(x) | a cast
timestamp_micros(x) | the time so many microseconds after 1970
timestamp_millis(x) | the time so many milliseconds after 1970
timestamp_seconds(x) | the time so many seconds after 1970
timestampadd(unit, n, timestamp) | the time so many units later
timestampdiff(unit, start, end) | the units between two times
tinyint(x) | a cast
to_binary(text[, format]) | a text as bytes
to_char(x, format) | a number or a time as text
to_csv(struct) | a struct as a line of CSV
to_date(text[, format]) | a text as a date
to_json(x) | a struct, an array or a map as JSON
to_number(text, format) | a text as a number
to_timestamp(text[, format]) | a text as a time
to_timestamp_ltz(text[, format]) | a text as a time
to_timestamp_ntz(text[, format]) | a text as a time without time zone
to_unix_timestamp(time[, format]) | a time as seconds since 1970
to_utc_timestamp(timestamp, zone) | a local time as UTC
to_varchar(x, format) | a number or a time as text
transform(array, x -> ...) | each element, changed
transform_keys(map, (k, v) -> ...) | the map with other keys
transform_values(map, (k, v) -> ...) | the map with other values
translate(text, from, to) | characters, replaced one by one
trim(text) | the text without spaces at both ends
trunc(date, unit) | the beginning of the month, year, ... of a date
try_add(x, y) | the sum; null if it overflows
try_cast(x AS type) | the value in another type; null if that fails
try_divide(x, y) | the quotient; null if y is zero
try_element_at(collection, key) | an element; null if it is missing
try_mod(x, y) | the remainder; null if y is zero
try_multiply(x, y) | the product; null if it overflows
try_subtract(x, y) | the difference; null if it overflows
try_to_binary(text[, format]) | a text as bytes; null if that fails
try_to_date(text[, format]) | a text as a date; null if that fails
try_to_number(text, format) | a text as a number; null if that fails
try_to_timestamp(text[, format]) | a text as a time; null if that fails
try_url_decode(text) | a part of a URL as text; null if that fails
typeof(x) | the name of the type
ucase(text) | the text in upper case
unbase64(text) | a text as bytes
unhex(text) | hexadecimal as bytes
unix_date(date) | the days since 1970-01-01
unix_micros(timestamp) | the microseconds since 1970
unix_millis(timestamp) | the milliseconds since 1970
unix_seconds(timestamp) | the seconds since 1970
unix_timestamp([time[, format]]) | the seconds since 1970
upper(text) | the text in upper case
url_decode(text) | a part of a URL as text
url_encode(text) | a text as a part of a URL
weekday(date) | the day of the week, from 0 for Monday
weekofyear(date) | the week of the year
width_bucket(x, least, greatest, n) | which of n equal buckets a value is in
xxhash64(x, ...) | a hash of 64 bits
year(date) | the year
zeroifnull(x) | 0 if it is null
zip_with(a, b, (x, y) -> ...) | the elements of two arrays, combined
"""

# What only certain places allow: over windows, and in GROUP BY.
EXTRA_SIGNATURES = (
    Signature("lag", "lag(x[, n]) OVER WINDOWS", "the value of an earlier window of the same group"),
    Signature("grouping", "grouping(key)", "1 if the grouping set leaves the key out"),
    Signature("grouping_id", "grouping_id()", "the bits of grouping() for all keys"),
)


def _signatures(text: str, is_aggregate: bool) -> Iterator[Signature]:
    for line in text.strip().splitlines():
        call, _, meaning = line.partition(" | ")
        yield Signature(call.partition("(")[0], call, meaning, is_aggregate)


@cache
def _written() -> dict[str, Signature]:
    aggregates = _signatures(_AGGREGATES, True)
    return {each.name: each for each in (*_signatures(_SCALARS, False), *aggregates)}


def aggregate_signatures() -> list[Signature]:
    """The aggregates that a query can call now, those of the program included, by name."""
    return [_signature(name, True) for name in sorted(window_function_names())]


def scalar_signatures(registered: frozenset[str] = frozenset()) -> list[Signature]:
    """The scalar functions that a query can call, with those that a program registered, by name."""
    return [_signature(name, False) for name in sorted(ALLOWED | registered)]


def _signature(name: str, is_aggregate: bool) -> Signature:
    written = _written().get(name)
    if written is not None and written.is_aggregate == is_aggregate:
        return written
    return Signature(name, f"{name}({'x' if is_aggregate else '...'})", OF_THE_PROGRAM, is_aggregate)
