"""The runs of a store, merged by size as in a log-structured merge tree."""

from __future__ import annotations

from dataclasses import dataclass

from transom.ondemand.structures.runs import Run, Structure

FANOUT = 8  # a power of two; 4 means a third fewer runs to look up and a third more writing
SMALL_RUN = 1 << 9  # smaller runs all belong to the first tier


@dataclass(frozen=True)
class RunTiers:
    """The runs of a structure, each made of whole batches; immutable, so versions share runs.

    FANOUT runs of similar size are merged into one. So n tuples lie in O(log n) runs and each is written
    O(log n) times, to the base FANOUT. Runs may overlap in time: a lookup combines them in any order.
    """

    runs: tuple[Run, ...] = ()

    def with_run(self, structure: Structure, run: Run | None, floor: int) -> RunTiers:
        """The tiers with one more run, if given, and without runs that end before `floor`."""
        given = () if run is None else (run,)
        runs = [self._trimmed(structure, run, floor) for run in (*self.runs, *given) if run.high >= floor]
        runs = [run for run in runs if run.entries]
        while full_tier := _full_tier(runs):
            merged = structure.merged(sorted(full_tier, key=lambda one: one.base), floor)
            runs = [run for run in runs if run not in full_tier]
            if merged.entries:
                runs.append(merged)
        return RunTiers(tuple(runs))

    @staticmethod
    def _trimmed(structure: Structure, run: Run, floor: int) -> Run:
        """A run rewritten without its old entries once these are half of its time; until then lookups skip them."""
        return structure.merged([run], floor) if floor - run.base > (run.high - run.base + 1) // 2 else run

    @property
    def entries(self) -> int:
        return sum(run.entries for run in self.runs)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)


def _full_tier(runs: list[Run]) -> list[Run]:
    """The runs of the first tier that has FANOUT of them, if any."""
    tiers: dict[int, list[Run]] = {}
    for run in runs:
        tiers.setdefault((run.entries // SMALL_RUN).bit_length() // (FANOUT.bit_length() - 1), []).append(run)
    return next((tier for tier in tiers.values() if len(tier) >= FANOUT), [])
