"""The cluster watched without a plan: recording rules, alerts and boards from a bundle alone, and what runs trimtab in it."""

from trimtab.monitor.folders import in_cluster_files, monitoring_files
from trimtab.monitor.watched import Thresholds, Watched, read_thresholds, watched_cluster

__all__ = ["Thresholds", "Watched", "in_cluster_files", "monitoring_files", "read_thresholds", "watched_cluster"]
