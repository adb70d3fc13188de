"""Early estimates: projections of final results, bounds around them, and a monitor of their accuracy.

Reading order:

- `early_values`: the data that estimators exchange with the engine, and the accuracy formula.
- `marks`, `fading_average`: comparable moments of windows, and averages over windows.
- `group_profiles`, `experts`: what is learned of groups, and the projections.
- `conformal_bounds`: bounds from the history of errors.
- `pending_values`, `quality`, `monitor`, `accuracy_loop`: pairs of early and final values, and their scores.
- `estimator_stack`: all of that for one query or for several, as arrays.
- `estimator`: the statistics of one query, as an immutable value (`Estimator`).
- `result_values`, `batch_stacks`: a batch's results as such arrays, and its estimators as stacks.
- `feedback`: the link to the engine (`BatchFeedback`, `Observation`, `learn_from_batch`,
  `with_observations`, `add_estimates`, `new_estimator`).

Other packages use the names in parentheses and those exported here.
"""

from __future__ import annotations

from transom.estimates.early_values import EarlyValues, Estimates, FinalValues, ItemKind
from transom.estimates.estimator import Estimator
from transom.estimates.limits import EstimateLimits
from transom.estimates.monitor import Accuracy, ItemAccuracy, MarkAccuracy, Quality, Score

__all__ = [
    "Accuracy",
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
