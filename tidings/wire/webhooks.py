"""Headers of webhooks that are the same for every post."""

from __future__ import annotations

CONTENT_TYPE = "application/json"
# `User-Agent` of callbacks in the format of v1, and in that of the Cloud API.
USER_AGENT, CLOUD_USER_AGENT = "tidings", "facebookexternalua"
