"""What a structure keeps: a few runs, merged by size as a log-structured merge tree's."""

from __future__ import annotations

from dataclasses import dataclass

from transom.ondemand.structures.runs import Run, Structure

FANOUT = 8  # a power of two; with 4, a third fewer runs to look up and a third more writing
SMALL = 1 << 9  # runs up to here are all alike


@dataclass(frozen=True)
class RunTiers:
    """The runs of a structure, each made of whole batches; a value that shares runs with those before it.

    When there are FANOUT runs of about a size they become one. So of n tuples there are at most
    O(log n) runs, and a tuple is written O(log n) times, with FANOUT as the base. Runs may overlap in time:
    what is looked up is combined over runs, in any order.
    """

    runs: tuple[Run, ...] = ()

    def taken(self, structure: Structure, run: Run | None, floor: int) -> RunTiers:
        """With one more run, if given, without what is older than `floor`."""
        given = () if run is None else (run,)
        runs = [self._cut(structure, known, floor) for known in (*self.runs, *given) if known.high >= floor]
        runs = [known for known in runs if known.entries]
        while crowd := _crowd(runs):
            merged = structure.merged(sorted(crowd, key=lambda one: one.base), floor)
            runs = [known for known in runs if known not in crowd]
            if merged.entries:
                runs.append(merged)
        return RunTiers(tuple(runs))

    @staticmethod
    def _cut(structure: Structure, run: Run, floor: int) -> Run:
        """A run rewritten once the older half of its time has passed; until then lookups pass over that."""
        return structure.merged([run], floor) if floor - run.base > (run.high - run.base + 1) // 2 else run

    @property
    def entries(self) -> int:
        return sum(run.entries for run in self.runs)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)


def _crowd(runs: list[Run]) -> list[Run]:
    """As many runs of about a size as must become one, if there are so many."""
    tiers: dict[int, list[Run]] = {}
    for run in runs:
        tiers.setdefault((run.entries // SMALL).bit_length() // (FANOUT.bit_length() - 1), []).append(run)
    return next((tier for tier in tiers.values() if len(tier) >= FANOUT), [])
