"""Clocks of other machines against ours."""

from __future__ import annotations

import email.utils

from cli.doctor.findings import Finding, error, fine, warning

# Seconds. A lease, a token and a signature are off by as much as the clocks are.
GOOD_SECONDS, POOR_SECONDS = 2.0, 30.0
REMEDY = "have both keep time by NTP (chrony, systemd-timesyncd)"


def compare(check: str, theirs: float, ours: float, *, exact: bool) -> Finding:
    """theirs, ours: Unix seconds at the same moment; exact: theirs is no whole second, cut off."""
    difference = theirs - ours
    if not exact:
        # Anywhere within its second.
        difference = min(difference, difference + 1.0, key=abs) if abs(difference + 0.5) > 0.5 else 0.0
    text = f"differs from ours by {difference:+.1f} s"
    if abs(difference) > POOR_SECONDS:
        return error(check, text, REMEDY)
    if abs(difference) > GOOD_SECONDS:
        return warning(check, text, REMEDY)
    return fine(check, text)


def of_header(value: str) -> float | None:
    """Unix seconds of an HTTP `Date`, `None` for none."""
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None
