"""Early estimates: projections of final results, bounds around them, and a monitor of their accuracy.

Reading order:

- `early_values`: the data that estimators exchange with the engine, and the accuracy formula.
- `marks`, `fading_average`: comparable moments of windows, and averages over windows.
- `group_profiles`, `seasons`, `experts`: what is learned of groups and of hours, and the projections.
- `conformal_bounds`: bounds from the history of errors.
- `pending_values`, `quality`, `monitor`, `accuracy_loop`: pairs of early and final values, and their scores.
- `estimator_stack`: all of that for one query or for several, as arrays.
- `estimator`: the statistics of one query, as an immutable value (`Estimator`).
- `condition_margins`, `rising_values`: by how much HAVING is expected to hold, and where that is certain.
- `decision_history`, `decision_score`, `early_decisions`, `batch_decisions`: the margin from which on a window is
  announced, what became of announcements, and both for a query and for a batch.
- `result_values`, `batch_stacks`: a batch's results as such arrays, and its estimators as stacks.
- `feedback`: the link to the engine (`BatchFeedback`, `Observation`, `learn_from_batch`,
  `with_observations`, `add_estimates`, `new_estimator`).

Other packages use the names in parentheses and those exported here.
"""

from __future__ import annotations

from transom.estimates.decision_score import DecisionReport, DecisionScore
from transom.estimates.early_values import EarlyValues, Estimates, FinalValues, ItemKind
from transom.estimates.estimator import Estimator
from transom.estimates.limits import EstimateLimits
from transom.estimates.monitor import Accuracy, ItemAccuracy, MarkAccuracy, Quality, Score

__all__ = [
    "Accuracy",
    "DecisionReport",
    "DecisionScore",
    "EarlyValues",
    "EstimateLimits",
    "Estimates",
    "Estimator",
    "FinalValues",
    "ItemAccuracy",
    "ItemKind",
    "MarkAccuracy",
    "Quality",
    "Score",
]
