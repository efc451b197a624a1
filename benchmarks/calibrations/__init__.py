"""What this machine can do by itself: bare pieces of the work, taken in the same run as what they are put beside.

Each module has one function of the type `benchmarks.rig.calibration.Calibrate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.calibrations import mysqlslap
from benchmarks.rig.calibration import Calibrate

# Beside every benchmark of messages over the API.
COMMON: Sequence[Calibrate] = (mysqlslap.calibrate,)
