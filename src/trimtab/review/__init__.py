"""What somebody's manifests would have cost: Kubernetes objects read without a plan, and a history replayed under them."""

from trimtab.review.manifests import Manifests, read_objects
from trimtab.review.review import ManifestFault, Review, TargetReview, WorkloadReview, review_fleet

__all__ = ["ManifestFault", "Manifests", "Review", "TargetReview", "WorkloadReview", "read_objects", "review_fleet"]
