"""`return model.metrics()` is a response that Prometheus takes, in each of three frameworks."""

import asyncio

import httpx
import pytest

from trimtab_runtime import batch, metrics_text

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@batch(name="exposed")
def model(items: list[int]) -> list[int]:
    return items


def asgi_answer(app):
    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x") as client:
            return await client.get("/metrics")

    answer = asyncio.run(ask())
    return answer.status_code, answer.headers["content-type"], answer.text


def starlette_app():
    applications = pytest.importorskip("starlette.applications")
    from starlette.routing import Route

    async def metrics(request):
        return model.metrics()

    return applications.Starlette(routes=[Route("/metrics", metrics)])


def fastapi_app():
    app = pytest.importorskip("fastapi").FastAPI()

    @app.get("/metrics")
    async def metrics():
        return model.metrics()

    return app


@pytest.mark.parametrize("make_app", [starlette_app, fastapi_app])
def test_an_asgi_endpoint_returns_it_as_it_is(make_app):
    status, content_type, text = asgi_answer(make_app())

    assert (status, content_type) == (200, CONTENT_TYPE)
    assert text == str(model.metrics())


def test_a_flask_endpoint_returns_it_as_it_is():
    app = pytest.importorskip("flask").Flask("service")
    app.add_url_rule("/metrics", view_func=model.metrics)

    answer = app.test_client().get("/metrics")

    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    assert answer.text == str(model.metrics())


def test_it_is_still_the_text():
    assert 'trimtab_batcher_waiting{batcher="exposed"} 0' in model.metrics()
    assert model.metrics().splitlines()[0].startswith("# TYPE")
    assert "exposed" in metrics_text()
