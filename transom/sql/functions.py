"""The scalar functions that a query may call: Spark's deterministic ones.

Aggregates are in `transom.aggregates.table`. Not here, on purpose: functions that are random or depend on the machine
(rand, uuid, input_file_name), what reaches out of SQL (reflect, java_method), and generators (explode).
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Spark's aggregates that Transom does not have, so that the error can name them.
UNSUPPORTED_AGGREGATES = _words(
    """bit_and bit_or bit_xor bitmap_construct_agg count_min_sketch hll_union_agg try_avg try_sum"""
)

# Functions of Spark and Flink that people write and Transom does not have, with what to do instead.
_GROUP_WINDOW = "is not supported here; write GROUP BY {}(ts, '10 minutes'), or FROM TABLE({}(TABLE ...))"
_GROUP_WINDOWS = {"tumble": "window", "hop": "window", "cumulate": "window", "session": "session_window"}
_RANDOM = "is not supported: a batch that is repeated must give the same results"
REFUSED_FUNCTIONS = {
    **{name: _GROUP_WINDOW.format(call, name.upper()) for name, call in _GROUP_WINDOWS.items()},
    **dict.fromkeys(("rand", "randn", "random", "uuid", "shuffle"), _RANDOM),
    "proctime": "is not supported; give rows a column with their time of arrival, and name it with WATTR",
}

# What functions of other systems, and misspellings that look like another function, are called here.
OTHER_NAMES = {
    "arbitrary": "any_value",
    "arg_max": "max_by",
    "arg_min": "min_by",
    "argmax": "max_by",
    "argmin": "min_by",
    "approx_quantile": "approx_percentile",
    "approx_quantiles": "approx_percentile",
    "avarage": "avg",
    "average": "avg",
    "averege": "avg",
    "count_distinct": "count(DISTINCT x)",
    "group_concat": "string_agg",
    "groupuniqarray": "collect_set",
    "json_extract": "get_json_object",
    "json_value": "get_json_object",
    "len_array": "array_size",
    "logical_and": "bool_and",
    "logical_or": "bool_or",
    "nunique": "count(DISTINCT x)",
    "quantile": "percentile",
    "quantile_cont": "percentile",
    "quantile_disc": "percentile_disc",
    "sort": "sort_array",
    "stdev": "stddev",
    "topk": "approx_top_k",
    "top_k": "approx_top_k",
    "uniq": "approx_count_distinct",
    "unique": "count(DISTINCT x)",
    "unnest": "explode",
    "variant_get": "get_json_object",
    "wm_concat": "string_agg",
}

SCALAR_FUNCTIONS = {
    "math": """
        abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc
        degrees e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi
        pmod positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide
        try_mod try_multiply try_subtract unhex width_bucket""",
    "string": """
        ascii base64 bit_length btrim char char_length character_length chr collate concat concat_ws
        contains decode elt encode endswith find_in_set format_number format_string initcap instr lcase left
        len length levenshtein locate lower lpad ltrim luhn_check mask octet_length overlay position printf
        repeat replace reverse right rpad rtrim sentences soundex space split split_part startswith substr
        substring substring_index to_binary to_char to_number to_varchar translate trim try_to_binary
        try_to_number ucase unbase64 upper url_decode url_encode try_url_decode is_valid_utf8
        make_valid_utf8 parse_url""",
    "regexp": """
        like ilike regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
        regexp_replace regexp_substr rlike""",
    "time": """
        add_months convert_timezone current_date current_timestamp date_add date_diff date_format
        date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
        dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day make_date
        make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval
        minute month monthname months_between next_day now quarter second timestamp_micros timestamp_millis
        timestamp_seconds timestampadd timestampdiff to_date to_timestamp to_timestamp_ltz to_timestamp_ntz
        to_unix_timestamp to_utc_timestamp trunc try_to_timestamp try_to_date unix_date unix_micros
        unix_millis unix_seconds unix_timestamp weekday weekofyear year""",
    "conditional": """
        coalesce equal_null if ifnull isnan isnotnull isnull nanvl nullif nullifzero nvl nvl2 zeroifnull""",
    "cast": """
        bigint binary boolean cast date decimal double float int smallint string timestamp tinyint
        try_cast""",
    "json": """
        from_json get_json_object json_array_length json_object_keys schema_of_json to_json from_csv to_csv
        schema_of_csv""",
    "hash": "crc32 hash hll_sketch_estimate md5 sha sha1 sha2 xxhash64",
    "collection": """
        array array_append array_compact array_contains array_distinct array_except array_insert
        array_intersect array_join array_max array_min array_position array_prepend array_remove
        array_repeat array_size array_union arrays_overlap arrays_zip cardinality element_at flatten get map
        map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values
        named_struct sequence size slice sort_array str_to_map struct try_element_at""",
    "lambda": """
        aggregate exists filter forall map_filter map_zip_with reduce transform transform_keys
        transform_values zip_with""",
    "bit": "bit_count bit_get getbit shiftleft shiftright shiftrightunsigned",
    "type": "typeof",
}

ALLOWED = _words(" ".join(SCALAR_FUNCTIONS.values()))

# With three arguments these take a unit as a bare word first: dateadd(HOUR, 1, ts).
TAKES_UNIT = _words("dateadd date_add datediff date_diff timestampadd timestampdiff")
UNIT_WORDS = _words(
    """year years y yr yrs yearofweek quarter quarters qtr month months mon mons week weeks w day days d
    dayofweek dow dayofweek_iso dow_iso dayofyear doy hour hours h hr hrs minute minutes m min mins second
    seconds s sec secs millisecond milliseconds microsecond microseconds nanosecond nanoseconds"""
)

# Functions that no expression may call: they read more than its columns, or fail a batch.
REACHING_OUT = _words(
    """reflect try_reflect java_method identifier input_file_name input_file_block_start
    input_file_block_length read_files read_kafka read_kinesis range explode posexplode inline stack
    current_user session_user user current_catalog current_database current_schema version
    raise_error assert_true"""
)

# A number in the query determines the size of their values.
UNBOUNDED = _words(
    "repeat space lpad rpad sequence array_repeat array_insert format_string printf format_number"
)

# They match patterns by backtracking, as Java does.
MATCHING = _words(
    """rlike regexp regexp_like regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace
    regexp_substr split"""
)
