"""Comparison of other machines' clocks with the local clock."""

from __future__ import annotations

import email.utils

from cli.doctor.findings import Finding, error, fine, warning

# Difference in seconds above which there is a warning, and an error. The validity of leases, tokens and signatures is
# off by the same amount.
GOOD_SECONDS, POOR_SECONDS = 2.0, 30.0
REMEDY = "synchronize both clocks by NTP (chrony, systemd-timesyncd)"


def compare(check: str, theirs: float, ours: float, *, exact: bool) -> Finding:
    """Return a finding about the difference of two clocks, read at the same moment.

    check: name of the finding.
    theirs, ours: Unix seconds.
    exact: False if `theirs` is truncated to a whole second.
    """
    difference = theirs - ours
    if not exact:
        # The other clock may be anywhere within that second.
        difference = min(difference, difference + 1.0, key=abs) if abs(difference + 0.5) > 0.5 else 0.0
    text = f"differs from this machine's by {difference:+.1f} s"
    if abs(difference) > POOR_SECONDS:
        return error(check, text, REMEDY)
    if abs(difference) > GOOD_SECONDS:
        return warning(check, text, REMEDY)
    return fine(check, text)


def of_header(value: str) -> float | None:
    """Return the Unix seconds of an HTTP `Date` header; None for an invalid one."""
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None
