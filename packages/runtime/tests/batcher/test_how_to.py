"""The how-to page, run as it stands."""

import asyncio
import contextlib
import io
import re
from pathlib import Path

import httpx

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "batching.md"


def test_every_example_runs_and_prints_what_its_comments_say():
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    promised = re.findall(r"^print\(.*\)  # (.*?)(?:, from a thread)?$", code, re.MULTILINE)
    names = {"__name__": "how_to"}
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), names)

    assert printed.getvalue().splitlines() == promised
    assert asyncio.run(asked(names["app"])) == (200, {"y": 42.0})
    assert asyncio.run(asked(names["service"])) == (200, {"y": 42.0})
    assert "trimtab_batcher_waiting" in names["score"].metrics()


async def asked(app):
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        response = await client.post("/predict", json={"x": 21.0})
        return response.status_code, response.json()
