"""The files of a proved fleet with one service, and what a review reads from such files."""

import yaml
from benchmarks.disaggregated_plans import NAME

from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.review import read_objects
from trimtab.review.deployments import proposed_deployments


def written(fleet, facts=None):
    """All objects that enact its plan, each with the path of its file; none that undoes it."""
    return [
        (file.path, body)
        for file in emit_plan(fleet.planned.plan, facts or fleet.facts).files
        if file.path.endswith(".yaml") and not file.path.startswith("rollback/")
        for body in yaml.safe_load_all(file.text)
    ]


def read(fleet, documents):
    """What a review takes from these objects."""
    manifests = read_objects(documents).laid_on([NAME])
    return proposed_deployments({NAME: fleet.planned.cases[NAME]}, fleet.proven.enacted.market, manifests)[NAME]
