"""How the batcher is used by people who check types: mypy must find each line right."""

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from trimtab_runtime import Batcher, batch
from trimtab_runtime.batcher import DONE
from trimtab_runtime.batcher.streaming import Done


@batch
def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@batch(max_batch=8, key=len)
async def halves(texts: list[str]) -> list[float]:
    return [len(text) / 2 for text in texts]


@batch
def letters(words: list[str]) -> Iterator[list[str | Done]]:
    yield [word[0] if word else DONE for word in words]


@batch(max_batch=8)
async def codes(words: list[str]) -> AsyncIterator[list[int | Done]]:
    yield [ord(word[0]) if word else DONE for word in words]


class Model:
    @batch(max_batch=8)
    def score(self, texts: list[str]) -> list[float]:
        return [0.5 for _ in texts]

    @batch
    async def rank(self, texts: list[str]) -> list[int]:
        return [1 for _ in texts]


async def use(model: Model) -> None:
    assert_type(lengths, Batcher[str, int])
    assert_type(await lengths("a"), int)
    assert_type(await halves.map(["a", "b"]), list[float])
    assert_type(model.score.call("a"), float)
    assert_type(await model.rank("a"), int)
    assert_type([letter async for letter in letters("abc")], list[str])
    assert_type([code async for code in codes("abc")], list[int])
