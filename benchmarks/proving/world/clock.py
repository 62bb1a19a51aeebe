"""Lengths of time, for a world that shares no constants with what it judges."""

from __future__ import annotations

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400
HOURS_PER_DAY = 24
HOURS_PER_MONTH = 730
"""As clouds count a month."""
TICK_S = 15
"""Control loops run this often: `--horizontal-pod-autoscaler-sync-period` is 15 s by default."""
