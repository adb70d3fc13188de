"""What a pass of the planner decided about a stream, in the form that a checkpoint stores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

ChoiceFields = tuple[str, str, str, str]  # what a decision is about, what was chosen, the reason, the kind


@dataclass(frozen=True)
class PassDecisions:
    """The decisions of one pass about one stream that hold after a batch."""

    stream: str
    pass_name: str
    rows: tuple[ChoiceFields, ...]

    @cached_property
    def packed(self) -> bytes:
        """JSON with a list for each column; made once, however many commits store the same decisions."""
        abouts, choices, reasons, kinds = zip(*self.rows, strict=True) if self.rows else ((), (), (), ())
        stored = {
            "stream": self.stream,
            "pass": self.pass_name,
            "about": abouts,
            "chosen": choices,
            "reason": reasons,
            "kind": kinds,
        }
        return json.dumps(stored).encode()

    @classmethod
    def unpacked(cls, packed: bytes) -> PassDecisions:
        stored = json.loads(packed)
        columns = (stored[name] for name in ("about", "chosen", "reason", "kind"))
        return cls(stored["stream"], stored["pass"], tuple(zip(*columns, strict=True)))
