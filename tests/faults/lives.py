"""Processes that run a program on one checkpoint, one after the other, until one of them gets to the end.

They are forked from a server that has imported everything: a life takes as long as the program runs, and no longer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.workload import Workload
from transom.storage.failpoints import arm

LONGEST_LIFE = 120.0  # seconds; the whole program takes five

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.warm"])


def _live(workload: Workload, place: Path, deadly: Collection[str], skipped: int) -> None:
    """Run the program, and die at the first deadly failpoint after some that are skipped."""
    reached = 0

    def act(name: str) -> None:
        nonlocal reached
        reached += 1
        if reached > skipped and name in deadly:
            (place / "died_at").write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    arm(act if deadly else None)
    workload.run(place)


@dataclass
class Lives:
    """One program's lives; `deaths` counts them by failpoint, and under an empty name those at any moment."""

    workload: Workload
    place: Path
    deaths: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True)
        self.workload.prepare(self.place)

    def until_failpoint(self, deadly: Collection[str], skipped: int = 0) -> str | None:
        """Live until one of some failpoints; which one it was, None if the program ended before."""
        life = _context.Process(target=_live, args=(self.workload, self.place, frozenset(deadly), skipped))
        life.start()
        life.join(LONGEST_LIFE)
        return self._end(
            life, (self.place / "died_at").read_text() if life.exitcode == -signal.SIGKILL else ""
        )

    def for_seconds(self, seconds: float) -> bool:
        """Live for some time; whether the program was killed before its end."""
        life = _context.Process(target=_live, args=(self.workload, self.place, frozenset(), 0))
        life.start()
        life.join(seconds)
        life.kill()
        life.join()
        return self._end(life, "") is not None

    def _end(self, life: Any, cause: str) -> str | None:
        if life.exitcode == 0:
            return None
        assert life.exitcode == -signal.SIGKILL, f"exit code {life.exitcode} after {self.deaths}"
        self.deaths[cause] += 1
        return cause

    def outcome(self) -> dict[str, Any]:
        """What came out in the end."""
        return json.loads((self.place / "outcome.json").read_text())

    @property
    def batches(self) -> int:
        """How many batches were committed so far."""
        state = self.place / "checkpoint" / "state"
        return max((int(file.stem) for file in state.glob("*.arrow")), default=0)


def kill_at_failpoints(workload: Workload, place: Path, wanted: Counter[str], draw: Random) -> list[Lives]:
    """Kill programs at each failpoint as often as wanted; each gets to the end."""
    programs = list[Lives]()
    while +wanted:
        program = Lives(workload, place / str(len(programs)))
        programs.append(program)
        while (died_at := program.until_failpoint(+wanted, draw.randrange(60))) is not None:
            wanted[died_at] -= 1
        assert program.deaths, f"the program does not reach {sorted(+wanted)}"
    return programs


def kill_at_any_moment(workload: Workload, place: Path, kills: int, draw: Random) -> list[Lives]:
    """Kill programs as often as wanted, whatever they are doing; each gets to the end."""
    programs, done = list[Lives](), 0
    while done < kills:
        program, seconds = Lives(workload, place / str(len(programs))), 1.0
        programs.append(program)
        while True:
            before = program.batches
            if not program.for_seconds(draw.uniform(0, seconds) if done < kills else LONGEST_LIFE):
                break
            done += 1
            seconds = seconds * 1.5 if program.batches == before else 1.0  # slow machines get on, too
    return programs
