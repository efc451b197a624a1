"""Calibrations: bare pieces of the work, measured on this machine in the same run as the results compared with them.

One module per calibration, with one function of the type `benchmarks.rig.calibration.Calibrate`. `bare` and
`bare_servers` are shared by those that generate load.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.calibrations import echo, fastapi_post, mysqlslap, pqxdh, ratchet, ratchet_alone, webhook_post
from benchmarks.rig.calibration import Calibrate

# For every benchmark of messages over the API; about 17 s together.
COMMON: Sequence[Calibrate] = (
    mysqlslap.calibrate,
    fastapi_post.calibrate,
    webhook_post.calibrate,
    ratchet.calibrate,
    ratchet_alone.calibrate,
    pqxdh.calibrate,
    echo.calibrate,
)
