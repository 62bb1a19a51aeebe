"""The page of a fit: whole by itself, every picture in it, escaped, drawn by a browser."""

import re
import subprocess
from html.parser import HTMLParser

import pytest

import trimtab as tt
from trimtab.catalog import load_catalog
from trimtab.emit.fit_document import FitDocument, frontier, serving_ways, training_ways
from trimtab.emit.html.fit_charts import STYLE, Axis, cost_against_time, value_chart
from trimtab.emit.sections.fit import fit_page
from trimtab.emit.writers import html
from trimtab.fleet.ownership import serving_cost, training_cost
from trimtab.fleet.settings import Settings
from trimtab.physics.ask import FitMarket
from trimtab.physics.roofline import Phase, training_roofline
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand
from trimtab.physics.training import Method


@pytest.fixture(scope="module")
def served():
    return tt.fit("llama-3.1-8b", serve=Demand(input_tokens=1024, output_tokens=256, rate_req_s=5))


@pytest.fixture(scope="module")
def trained():
    return tt.fit("llama-3.1-8b", train=TrainingDemand(method=Method.FULL, tokens=1e8))


def page_of(ways, total, roofs=(), rejected=(), **changes):
    given = {"title": "a <model>", "question": "5 requests/s", "remarks": ("note",), "paste": "vllm serve x", **changes}
    return FitDocument(ways=ways[:6], field=ways, total=total, rooflines=roofs, rejected=rejected, **given)


@pytest.fixture(scope="module")
def page(trained):
    total = training_cost(trained.found[0], Settings(), setup_hr=0.5, tokens=1e8)
    roof = training_roofline(trained.found[0].plan, trained.found[0].gpu)
    document = page_of(training_ways(trained.found), total, (roof,), trained.rejected)
    return html.write_page(fit_page(document), style=STYLE)


def test_the_page_asks_for_nothing_from_elsewhere(page):
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert page.count("<script") == 1, "the one that the policy names"


def test_the_page_holds_every_picture_and_the_whole_cost(page):
    for name in ("pareto", "value", "memory", "roofline"):
        assert f'class="chart {name}' in page
    for item in ("busy GPUs", "stranded GPUs", "storage", "network egress", "operations"):
        assert item in page


def test_text_is_escaped(page):
    assert "a &lt;model&gt;" in page


def test_tags_are_closed(page):
    class Depth(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open_tags = []

        def handle_starttag(self, tag, attrs):
            self.open_tags.append(tag)

        def handle_endtag(self, tag):
            assert self.open_tags.pop() == tag

    parser = Depth()
    parser.feed(page)
    assert parser.open_tags == []


def test_nothing_of_the_frontier_is_beaten(served):
    ways = serving_ways(served.found)
    best = frontier(ways)

    assert best
    for one in best:
        assert not any(way.cost.value < one.cost.value and way.time.value < one.time.value for way in ways)
    assert min(way.cost.value for way in ways) == best[-1].cost.value


def test_the_dearest_ways_do_not_squeeze_the_picture(served):
    drawn = cost_against_time(serving_ways(served.found))

    assert drawn.count("<circle") <= len(served.found)
    assert "dot-best" in drawn


def test_free_hardware_has_no_bars_of_value():
    demand = Demand(input_tokens=1024, output_tokens=256, rate_req_s=1)
    own = serving_ways(
        tt.fit("mistral-7b", serve=demand, market=FitMarket(catalog=load_catalog(), own="rtx4090")).found
    )

    assert value_chart(own) == ""
    assert cost_against_time(own) == ""


@pytest.mark.parametrize(("low", "high", "ticks"), [(1, 10, [1, 2, 5, 10]), (0.3, 3, [0.5, 1, 2]), (0.5, 2e5, [1, 10])])
def test_axes_carry_round_values(low, high, ticks):
    assert Axis(low=low, high=high, start=0, end=100).ticks()[: len(ticks)] == pytest.approx(ticks)


def test_a_training_step_is_bound_by_compute_when_many_tokens_share_the_weights(trained):
    (point,) = training_roofline(trained.found[0].plan, trained.found[0].gpu).points

    assert point.phase is Phase.STEP
    assert point.flop_per_byte > 100


def test_a_browser_draws_the_page(page, chromium_bin, tmp_path):
    file, picture = tmp_path / "fit.html", tmp_path / "fit.png"
    file.write_text(page, encoding="utf-8")

    subprocess.run(
        [chromium_bin, "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={picture}", "--window-size=1100,2000",
         f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip

    assert picture.stat().st_size > 50_000


def test_serving_costs_stand_in_the_page(served):
    total = serving_cost(served.found[0], Settings(), output_tokens=256, hours_per_day=24)

    text = html.write_page(fit_page(page_of(serving_ways(served.found), total)))

    assert "headroom and idle time" in text
    assert "What an hour costs under each buying option" in text
    assert "Full cost of the first option, per month" in text
