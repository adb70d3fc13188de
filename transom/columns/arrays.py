"""Names for the types of NumPy arrays that annotations use throughout the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Keys = NDArray[np.uint64]  # join keys, hashed
