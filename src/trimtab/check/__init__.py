"""A folder of manifests, checked before anything is applied, and held against the objects of a cluster."""

from trimtab.check.checking import CheckResult, check_folder
from trimtab.check.cluster import Cluster, read_cluster
from trimtab.check.comparison import Difference, differences
from trimtab.check.faults import ObjectFault, Severity
from trimtab.check.schemas import Schemas

__all__ = [
    "CheckResult",
    "Cluster",
    "Difference",
    "ObjectFault",
    "Schemas",
    "Severity",
    "check_folder",
    "differences",
    "read_cluster",
]
