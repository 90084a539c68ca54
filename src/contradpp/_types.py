"""Names of array types that the whole package shares."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int32]  # item codes, positions in a vocabulary
Ints = NDArray[np.int64]  # counts, pointers, positions
Flags = NDArray[np.bool_]
Complex = NDArray[np.complex128]
Floats = NDArray[np.floating]  # float64 or float32
Rng = np.random.Generator
StrPath = str | os.PathLike[str]
Values = dict[str, Any]  # by name: options, or plain values for JSON
