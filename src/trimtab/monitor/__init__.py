"""The cluster watched without a plan: recording rules, alerts and boards from a bundle alone, and what runs trimtab in it."""

from trimtab.monitor.folder import monitoring_files
from trimtab.monitor.in_cluster import in_cluster_files
from trimtab.monitor.thresholds import Thresholds, read_thresholds
from trimtab.monitor.watched import Watched, watched_cluster

__all__ = ["Thresholds", "Watched", "in_cluster_files", "monitoring_files", "read_thresholds", "watched_cluster"]
