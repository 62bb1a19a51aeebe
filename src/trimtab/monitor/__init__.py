"""The cluster watched without a plan: recording rules, alerts and boards from a bundle alone."""

from trimtab.monitor.folder import monitoring_files
from trimtab.monitor.thresholds import Thresholds, read_thresholds
from trimtab.monitor.watched import Watched, watched_cluster

__all__ = ["Thresholds", "Watched", "monitoring_files", "read_thresholds", "watched_cluster"]
