"""What this machine can do by itself: bare pieces of the work, taken in the same run as what they are put beside.

A module for each, with one function of the type `benchmarks.rig.calibration.Calibrate`; `bare` and `bare_servers` are
what those by load share.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.calibrations import echo, fastapi_post, mysqlslap, pqxdh, ratchet, ratchet_alone, webhook_post
from benchmarks.rig.calibration import Calibrate

# Beside every benchmark of messages over the API: some 17 s together.
COMMON: Sequence[Calibrate] = (
    mysqlslap.calibrate,
    fastapi_post.calibrate,
    webhook_post.calibrate,
    ratchet.calibrate,
    ratchet_alone.calibrate,
    pqxdh.calibrate,
    echo.calibrate,
)
