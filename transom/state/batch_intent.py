"""What is written ahead for a batch, so that a replayed batch does the same work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transom.elements import Control
from transom.state.checkpoint_format import FORMAT_VERSION, check_format
from transom.state.json_forms import decode_control, encode_control


@dataclass(frozen=True)
class BatchIntent:
    """What a batch is bound to before it runs: its rows, its control and its reading of the clock."""

    batch_id: int
    clock: int  # the batch's reading of the clock: current_timestamp of its queries
    stream: str | None = None  # whose rows it carries; none for a control batch
    reference: Mapping[str, Any] = field(default_factory=dict)
    control: tuple[Control, ...] = ()
    ended: tuple[str, ...] = ()  # streams whose open windows close
    tables: Mapping[str, int] = field(default_factory=dict)  # versions
    budget: int | None = None  # rows that it may process at once; further rows are sidelined, or shed
    sidelined: tuple[str, ...] = ()  # chunks of sidelined rows that it takes in
    probes: Mapping[str, int] = field(default_factory=dict)  # of queries whose budget is a time
    resumes: bool = False  # whether it resumes what budgets have deferred
    suspended: Mapping[str, str] = field(
        default_factory=dict
    )  # what made it fail and is left out, with the reason
    idle: tuple[str, ...] = ()  # those of the streams that end which have fallen idle
    # Attempts that were begun and did not end, by what they left out: the process died in them, or is in one now.
    unfinished: Mapping[str, int] = field(default_factory=dict)
    # The identities of queries WITH PREFERENCE whose results end.
    ended_results: tuple[str, ...] = ()
    # By stream, the clock when its partitions were read from a checkpoint: they were not silent before that.
    resumed: Mapping[str, int] = field(default_factory=dict)

    @property
    def takes_new_rows_only(self) -> bool:
        """Whether it processes all new rows of its stream and no sidelined ones: there is no budget to keep."""
        return bool(self.reference) and self.budget is None and not self.sidelined

    def to_json(self) -> dict[str, Any]:
        return {
            "version": FORMAT_VERSION,
            "batch": self.batch_id,
            "clock": self.clock,
            "stream": self.stream,
            "reference": dict(self.reference),
            "control": [encode_control(element) for element in self.control],
            "ended": list(self.ended),
            "tables": dict(self.tables),
            "budget": self.budget,
            "sidelined": list(self.sidelined),
            "probes": dict(self.probes),
            "resumes": self.resumes,
            **({"suspended": dict(self.suspended)} if self.suspended else {}),
            **({"idle": list(self.idle)} if self.idle else {}),
            **({"unfinished": dict(self.unfinished)} if self.unfinished else {}),
            **({"ended_results": list(self.ended_results)} if self.ended_results else {}),
            **({"resumed": dict(self.resumed)} if self.resumed else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> BatchIntent:
        check_format(stored.get("version", "5 or older"))
        return cls(
            batch_id=stored["batch"],
            clock=stored["clock"],
            stream=stored["stream"],
            reference=stored["reference"],
            control=tuple(map(decode_control, stored["control"])),
            ended=tuple(stored["ended"]),
            tables=stored["tables"],
            budget=stored["budget"],
            sidelined=tuple(stored["sidelined"]),
            probes=stored["probes"],
            resumes=stored["resumes"],
            suspended=stored.get("suspended", {}),
            unfinished=stored.get("unfinished", {}),
            ended_results=tuple(stored.get("ended_results", ())),
            resumed=stored.get("resumed", {}),
            idle=tuple(stored.get("idle", ())),
        )
