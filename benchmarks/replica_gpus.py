"""What another number of GPUs a replica saves in plans: services of `disaggregated_plans`, with the lever and without it.

Their true steps take a drawn factor (0.8 to 1.25) times what physics predicts. Where the plan changes the number of GPUs,
one of its replicas is replayed at that factor under its share of the busiest minutes of the week that the plan did not see: the
least share of requests in time there, over the first token and the time per token, of which 0.95 were promised.

    python -m benchmarks.replica_gpus [--fleets 20] [--seed 1]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from benchmarks.disaggregated_plans import (
    NAME,
    Drawn,
    in_words,
    limits_of,
    proved,
    query_of,
    requests_of,
    service_of_seed,
)
from benchmarks.lever_worth import Row, compared, run
from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import SetReplicaPolicy, SetReplicas
from trimtab.levers import replica_gpus
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import default_step_tokens, first_token_fit
from trimtab.physics.serving_query import serving_columns, serving_keys
from trimtab.replay.first_token import replay_deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueRow(Row):
    """A fleet, and the share of requests that are in time in its busiest minutes where steps take as long as they truly do."""

    true_frac: float
    """NaN where the plan leaves the number of GPUs."""


def row_of_seed(seed: int) -> TrueRow:
    """Plan, prove, write, read and check one fleet."""
    drawn, rows = service_of_seed(seed)
    fleet = proved(seed, rows)
    row = compared(fleet, replica_gpus.NAME, seed=seed, said=in_words(drawn))
    unseen = rows.rows["demand"][len(rows.rows["demand"]) // 2 :]
    peak_req_s = float(np.quantile([step["arrivals"] / step["interval_s"] for step in unseen], 0.999))
    true_frac = true_share(drawn, fleet.planned.deployments.get(NAME, Deployment()), peak_req_s)
    return TrueRow(**{field.name: getattr(row, field.name) for field in fields(Row)}, true_frac=true_frac)


def true_share(drawn: Drawn, deployment: Deployment, peak_req_s: float) -> float:
    """Return the least share in time, over the limits, of requests on one replica of a plan at its share of a peak."""
    number, scaling = deployment.replica_gpus, deployment.scaling
    if number is None:
        return math.nan
    if isinstance(scaling, SetReplicas):
        replicas = scaling.replicas
    else:
        assert isinstance(scaling, SetReplicaPolicy)
        replicas = math.ceil(peak_req_s / (number.replica_req_s * scaling.hpa.target_frac))
    gpu = load_catalog().gpu(number.nodes.gpu)
    query = replace(query_of(drawn), gpu=gpu, gpus=number.gpus, tensor=number.gpus)
    columns, requests = serving_columns([query]), requests_of(drawn)
    replayed = replay_deployment(
        columns, coefficients_of([query], columns), requests._replace(arrival_s=requests.arrival_s * replicas / peak_req_s),
        max_num_seqs=number.concurrency, step_tokens=default_step_tokens(gpu), scale=drawn.factor,
    )  # fmt: skip
    first_s = first_token_fit().of(serving_keys(query)).first_s(replayed.ttft_s, np.nan_to_num(replayed.tpot_s))
    kept, limits = slice(len(first_s) // 10, None), limits_of(drawn)
    shares = (np.mean(first_s[kept] <= limits["first"]), np.nanmean(replayed.tpot_s[kept] <= limits["token"]))
    return float(min(shares))


def least_true(rows: Sequence[TrueRow]) -> dict[str, object]:
    """Return the least true share, over the fleets whose plan changes the number of GPUs."""
    known = [row.true_frac for row in rows if not math.isnan(row.true_frac)]
    return {"least_true_frac": round(min(known), 4) if known else None}


if __name__ == "__main__":
    run("replica_gpus", __doc__, row_of_seed, least_true)
