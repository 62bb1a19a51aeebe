"""`trimtab.fit`: which GPU for this model, how many, what it costs; the library's face of the searches."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.catalog import load_catalog
from trimtab.errors import UsageError
from trimtab.physics.ask import DEFAULT_ENGINE, FitAnswer, FitMarket, serving_answer, training_answer
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import Architecture, model_named
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand


def fit(
    model: str | Architecture,
    *,
    serve: Demand | None = None,
    train: TrainingDemand | None = None,
    market: FitMarket | None = None,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
) -> FitAnswer:
    """Return which GPU a model needs, how many, and what it costs; give either `serve` or `train`.

    Without a `market`, every NVIDIA GPU that somebody sells on demand, at the packaged prices. Raises UnknownName for a model
    that no table knows, UsageError unless exactly one demand is given.

    >>> answer = fit("llama-3.1-8b", serve=Demand(input_tokens=1024, output_tokens=256, rate_req_s=5))
    >>> answer.found[0].usd_per_mtok.value < answer.found[-1].usd_per_mtok.value
    True
    """
    market = market or FitMarket(catalog=load_catalog())
    architecture = model_named(model) if isinstance(model, str) else model
    match serve, train:
        case Demand(), None:
            return serving_answer(architecture, serve, market, engine=engine, formats=formats)
        case None, TrainingDemand():
            return training_answer(architecture, train, market)
        case _:
            raise UsageError("give either serve=Demand(...) or train=TrainingDemand(...)")
