"""The GPU picker: which GPU serves a model under a load and limits, how many, and what it costs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from starlette.datastructures import QueryParams

from trimtab.emit.fit_document import serving_ways
from trimtab.emit.html.fit_charts import cost_against_time
from trimtab.emit.html.markup import Html, tag
from trimtab.errors import TrimtabError, near_matches
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.models import find_model, known_models
from trimtab.physics.serving_demand import Demand, Targets
from trimtab.pipeline.fitting import fit
from trimtab.units import MS_PER_S
from trimtab.web.layout import Place, page, panel, short_table
from trimtab.web.questions import BadQuestion, number, word
from trimtab.web.tables import DECIMAL, MONEY, SMALL_MONEY, DataColumn, DataTable, Row, Value

_MOST_ANSWERS = 64
_FIRST_MODEL = "llama-3-8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWanted:
    """A model and its load: requests a second, tokens in and out, limits in milliseconds (None: no limit)."""

    model: str
    rate_req_s: float
    input_tokens: float
    output_tokens: float
    ttft_ms: float | None
    tpot_ms: float | None

    def demand(self) -> Demand:
        """Return the load as the search takes it."""
        ttft_s, tpot_s = (None if limit is None else limit / MS_PER_S for limit in (self.ttft_ms, self.tpot_ms))
        return Demand(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            rate_req_s=self.rate_req_s,
            targets=Targets(ttft_s=ttft_s, tpot_s=tpot_s),
        )


def wanted(query: QueryParams) -> ServingWanted | None:
    """Return what is asked for, None where nothing is yet; raises BadQuestion. Only models of the table can be asked for."""
    model = word(query, "model")
    if not model:
        return None
    if (found := find_model(model)) is None:
        near = near_matches(model, known_models())
        meant = f"did you mean {', '.join(near)}? " if near else ""
        raise BadQuestion(
            f"no model {model!r} in the picker's list; {meant}`trimtab fit` takes others by their config.json"
        )
    return ServingWanted(
        model=found.name,
        rate_req_s=number(query, "rate", 0.001, 100_000.0) or 5.0,
        input_tokens=number(query, "input", 1.0, 1e6) or 1024.0,
        output_tokens=number(query, "output", 1.0, 1e5) or 256.0,
        ttft_ms=number(query, "ttft", 1.0, 600_000.0),
        tpot_ms=number(query, "tpot", 0.1, 60_000.0),
    )


class Picker:
    """Answers questions one at a time, and remembers the last of them."""

    def __init__(self) -> None:
        # by hand: `lru_cache` would search twice for two readers who ask the same at once
        self._known: OrderedDict[ServingWanted, tuple[ServingOption, ...]] = OrderedDict()
        self._searching = threading.Lock()

    def ways(self, asked: ServingWanted) -> tuple[ServingOption, ...]:
        """Return the ways that work, the cheapest first; raises TrimtabError."""
        with self._searching:
            if asked not in self._known:
                found = fit(asked.model, serve=asked.demand()).found
                self._known[asked] = tuple(way for way in found if isinstance(way, ServingOption))
                if len(self._known) > _MOST_ANSWERS:
                    self._known.popitem(last=False)
            return self._known[asked]


def picker_page(asked: ServingWanted | None, ways: tuple[ServingOption, ...]) -> str:
    """Return the page: the form, and the cheapest way on each GPU where something was asked for."""
    place = Place(title="Which GPU for this model?", section="fit")
    if asked is None:
        return page(place, _form(asked), tag("p", "Prices are those of the packaged list, on demand.", class_="soft"))
    if not ways:
        words = "Nothing that is sold on demand keeps these limits; loosen one of them."
        return page(place, _form(asked), panel("What works", tag("p", words)))
    picture = tag("div", cost_against_time(serving_ways(ways)), class_="wide")
    return page(
        place,
        _form(asked),
        panel(
            "What works, cheapest first",
            short_table(ways_table(ways)),
            lead="The best way on each GPU; cost with its 80% interval. What has a caveat stands last, even if it costs less.",
        ),
        tag("div", panel("Cost against time", picture), class_="wide"),
    )


def ways_table(ways: tuple[ServingOption, ...]) -> DataTable:
    """Return the cheapest way on each GPU."""
    best: dict[str, Row] = {}
    for way, shown in zip(ways, serving_ways(ways), strict=True):
        row: dict[str, Value] = {
            "gpus": shown.label,
            "setup": shown.setup,
            "usd_per_mtok": way.usd_per_mtok.value,
            "interval": f"{way.usd_per_mtok.low:.3f}-{way.usd_per_mtok.high:.3f}",
            "usd_hr": way.usd_hr,
            "tpot_ms": way.tpot_s.value * MS_PER_S,
            "where": "; ".join((shown.where, *(caveat.value for caveat in way.caveats))),
        }
        best.setdefault(way.gpu.name, row)
    rows = list(best.values())
    return DataTable(
        key="ways",
        title="Ways to serve",
        columns=(
            DataColumn(key="gpus", title="GPUs", whole=True),
            DataColumn(key="usd_per_mtok", title="$/M tokens", format=SMALL_MONEY),
            DataColumn(key="interval", title="80% interval", less=True, whole=True),
            DataColumn(key="usd_hr", title="$/hour", format=MONEY, less=True),
            DataColumn(key="tpot_ms", title="ms a token", format=DECIMAL, less=True),
            DataColumn(key="setup", title="how", less=True, whole=True),
            DataColumn(key="where", title="where", cut=True),
        ),
        rows=rows,
    )


def _form(asked: ServingWanted | None) -> Html:
    chosen = asked.model if asked else _FIRST_MODEL
    options = (
        tag("option", name, value=name, selected="selected" if name == chosen else None)
        for name in sorted(known_models())
    )
    fields = (
        ("Requests a second", "rate", asked.rate_req_s if asked else 5.0),
        ("Tokens in", "input", asked.input_tokens if asked else 1024.0),
        ("Tokens out", "output", asked.output_tokens if asked else 256.0),
        ("First token, ms at most", "ttft", asked.ttft_ms if asked else None),
        ("Each token, ms at most", "tpot", asked.tpot_ms if asked else None),
    )
    inputs = (
        tag(
            "label",
            title,
            tag("input", type="number", name=name, step="any", value=None if value is None else f"{value:g}"),
        )
        for title, name, value in fields
    )
    return panel(
        "What is to be served",
        tag(
            "form",
            tag("label", "Model", tag("select", *options, name="model")),
            *inputs,
            tag("button", "Find"),
            action="/fit",
            method="get",
            class_="fit-form",
        ),
    )


def answered(picker: Picker, query: QueryParams) -> str:
    """Return the page that a query asks for; raises BadQuestion."""
    asked = wanted(query)
    if asked is None:
        return picker_page(None, ())
    try:
        return picker_page(asked, picker.ways(asked))
    except BadQuestion:
        raise
    except TrimtabError as error:
        raise BadQuestion(str(error)) from error
