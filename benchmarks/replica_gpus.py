"""What another number of GPUs a replica saves in plans: services of `disaggregated_plans`, with the lever and without it.

python -m benchmarks.replica_gpus [--fleets 20] [--seed 1]
"""

from functools import partial

from benchmarks.disaggregated_plans import row_of_seed
from benchmarks.lever_worth import run
from trimtab.levers import replica_gpus

if __name__ == "__main__":
    run("replica_gpus", __doc__, partial(row_of_seed, lever=replica_gpus.NAME))
