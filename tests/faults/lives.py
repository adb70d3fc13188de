"""Processes that run a program on one checkpoint, one after the other, until one of them gets to the end.

They are forked from a server that has imported everything: a life takes as long as the program runs, and no longer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import transom
from tests.faults.privileges import drop_privileges
from tests.faults.workload import Workload
from transom.storage.failpoints import arm

LONGEST_LIFE = 300.0  # seconds; the whole program takes three, on Spark thirty

WRITE_FAILED = 17  # the exit code of a program that could not write a file

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.warm"])


@dataclass(frozen=True)
class Fault:
    """What happens at the first of some failpoints after so many others: the process dies, or a write fails once.

    `file_size` is the size in bytes beyond which no file can be written; `privileged` is whether a program that runs as
    root may write where others may not.
    """

    failpoints: frozenset[str] = frozenset()
    skipped: int = 0
    error: int | None = None  # of the operating system; None: the process is killed
    file_size: int | None = None
    privileged: bool = True


def _live(workload: Workload, place: Path, fault: Fault) -> None:
    """Run the program with a fault; a write that fails must be reported as such."""
    reached, is_over = 0, False

    def act(name: str) -> None:
        nonlocal reached, is_over
        reached += 1
        if is_over or reached <= fault.skipped or name not in fault.failpoints:
            return
        (place / "ended_at").write_text(name)
        is_over = True
        if fault.error is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            raise OSError(fault.error, os.strerror(fault.error))

    (place / "ended_at").unlink(missing_ok=True)
    arm(act if fault.failpoints else None)
    if not fault.privileged:
        drop_privileges()
    if fault.file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.file_size, resource.RLIM_INFINITY))
    try:
        workload.run(place)
    except transom.WriteError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (place / "error").write_text(str(error))
        os._exit(WRITE_FAILED)


@dataclass
class Lives:
    """One program's lives; `deaths` counts them by failpoint, and under an empty name those at any moment."""

    workload: Workload
    place: Path
    deaths: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True)
        self.workload.prepare(self.place)

    def until(self, fault: Fault) -> str | None:
        """Live until a fault; at which failpoint it was, None if the program ended before."""
        life = _context.Process(target=_live, args=(self.workload, self.place, fault))
        life.start()
        life.join(LONGEST_LIFE)
        ended_at = self.place / "ended_at"
        return self._end(life, ended_at.read_text() if ended_at.exists() else "")

    def for_seconds(self, seconds: float) -> bool:
        """Live for some time; whether the program was killed before its end."""
        life = _context.Process(target=_live, args=(self.workload, self.place, Fault()))
        life.start()
        life.join(seconds)
        life.kill()
        life.join()
        return self._end(life, "") is not None

    def _end(self, life: Any, cause: str) -> str | None:
        if life.exitcode == 0:
            return None
        assert life.exitcode in (-signal.SIGKILL, WRITE_FAILED), (
            f"exit code {life.exitcode} after {self.deaths}"
        )
        self.deaths[cause] += 1
        return cause

    def error(self) -> str:
        """What the last write that failed was reported as."""
        return (self.place / "error").read_text()

    def outcome(self) -> dict[str, Any]:
        """What came out in the end."""
        return json.loads((self.place / "outcome.json").read_text())

    @property
    def batches(self) -> int:
        """How many batches were committed so far."""
        state = self.place / "checkpoint" / "state"
        return max((int(file.stem) for file in state.glob("*.arrow")), default=0)


def fail_at_failpoints(
    workload: Workload, place: Path, wanted: Counter[str], draw: Random, error: int | None = None
) -> list[Lives]:
    """Kill programs at each failpoint as often as wanted, or let a write fail there; each gets to the end."""
    programs = list[Lives]()
    while +wanted:
        program = Lives(workload, place / str(len(programs)))
        most = (
            0 if programs else 60
        )  # the first one fails all over the stream, the others wherever it did not
        programs.append(program)
        program.until(Fault(frozenset({"log.renamed"})))  # what comes with a restart is reached, too
        while True:
            ended_at = program.until(Fault(frozenset(+wanted), draw.randint(0, most), error))
            if ended_at is None:
                break
            wanted[ended_at] -= 1
            assert error is None or f"can't be written: {os.strerror(error)}; " in program.error()
        assert program.deaths.total() > 1, f"the program does not reach {sorted(+wanted)}"
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
