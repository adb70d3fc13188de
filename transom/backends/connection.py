"""A connection: a source of rows that a format and options describe, such as a topic of Kafka or a table of JDBC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transom.errors import SettingError, near_miss

FILE_FORMATS = frozenset({"parquet", "json", "csv", "orc", "avro", "text", "xml", "binaryfile"})
DECODED_FORMATS = ("json", "csv", "avro", "protobuf")
DECODER_SETTINGS = ("format", "column", "options", "schema_file", "message", "descriptor_file", "skip_bytes")
_NEEDED = {"avro": ("schema_file",), "protobuf": ("message", "descriptor_file")}


@dataclass(frozen=True)
class Decoder:
    """How the binary values of a column become columns.

    `skip_bytes` is the length of a header before each value: 5 for those that a schema registry's clients write.
    """

    format: str
    column: str = "value"
    options: Mapping[str, str] = field(default_factory=dict)
    schema_file: str | None = None  # of Avro, as JSON
    message: str | None = None  # of Protobuf, by its full name
    descriptor_file: str | None = None  # that `protoc --descriptor_set_out` writes
    skip_bytes: int = 0

    @classmethod
    def of(cls, given: Any) -> Decoder:
        """A decoder from its format, or from a mapping of its settings.

        >>> Decoder.of("json")
        Decoder(format='json', column='value', options={}, schema_file=None, message=None, descriptor_file=None, \
skip_bytes=0)
        """
        settings = {"format": given} if isinstance(given, str) else given
        if not isinstance(settings, Mapping):
            raise SettingError(
                f"decode: expected a format or a mapping with {', '.join(DECODER_SETTINGS)}, not {given!r}"
            )
        for name in settings:
            if name not in DECODER_SETTINGS:
                hint = near_miss(str(name), DECODER_SETTINGS)
                raise SettingError(f"decode.{name}: there is no such setting{hint}")
        format = settings.get("format")
        if not isinstance(format, str) or format.lower() not in DECODED_FORMATS:
            hint = near_miss(str(format), DECODED_FORMATS)
            raise SettingError(f"decode: expected one of {', '.join(DECODED_FORMATS)}, not {format!r}{hint}")
        decoder = cls(**{**settings, "format": format.lower()})
        for name in _NEEDED.get(decoder.format, ()):
            if getattr(decoder, name) is None:
                raise SettingError(f"decode: {decoder.format} needs {name}")
        for name in ("schema_file", "message", "descriptor_file"):
            if name in settings and name not in _NEEDED.get(decoder.format, ()):
                raise SettingError(f"decode.{name}: {decoder.format} has no such setting")
        if isinstance(decoder.skip_bytes, bool) or not isinstance(decoder.skip_bytes, int):
            raise SettingError(f"decode.skip_bytes: expected a whole number, not {decoder.skip_bytes!r}")
        if decoder.skip_bytes < 0:
            raise SettingError(f"decode.skip_bytes: expected at least 0, not {decoder.skip_bytes}")
        if not isinstance(decoder.options, Mapping):
            raise SettingError(f"decode.options: expected a mapping of options, not {decoder.options!r}")
        return decoder

    @property
    def has_own_schema(self) -> bool:
        """Whether the decoder's own file says which columns there are."""
        return self.format in _NEEDED

    def file(self, path: str | None) -> bytes:
        """The content of one of its files."""
        try:
            return Path(path or "").read_bytes()
        except OSError as error:
            raise SettingError(f"decode: {path}: {error.strerror or error}") from None


@dataclass(frozen=True)
class Connection:
    """A source by its format, with its decoder. References to secrets in the options are not resolved yet."""

    format: str
    path: str | None = None
    schema: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    decoder: Decoder | None = None
    keeps_columns: bool = True  # whether the columns beside the decoded one are wanted, such as the offset
