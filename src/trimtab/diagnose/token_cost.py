"""What a service's tokens cost: its bill over input, output and cached tokens, to the last micro-dollar.

A GPU serves prompts and answers together, so how its cost divides between them is a rule, and every row says which one
(`fleet.token_work`).

Hours without token counts keep their part of the bill as `unread`; no price includes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.fleet.model import Fleet
from trimtab.fleet.token_work import TokenAmounts, TokenRule, TokenUse, token_use
from trimtab.units import TOKENS_PER_MTOK, apportion, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCharge:
    """A service's bill over its tokens, in micro-dollars that sum to it exactly; or the sum of several services."""

    name: str
    services: tuple[str, ...]
    input_micro_usd: int
    output_micro_usd: int
    cached_micro_usd: int
    unread_micro_usd: int
    """Of hours of which no tokens were read."""
    tokens: TokenAmounts
    cached_known: bool
    rules: tuple[TokenRule, ...]
    because: str

    @property
    def micro_usd(self) -> int:
        """Return the whole bill."""
        return self.input_micro_usd + self.output_micro_usd + self.cached_micro_usd + self.unread_micro_usd

    @property
    def input_usd_per_mtok(self) -> float | None:
        """Return dollars per million prompt tokens that were computed; None where there were none."""
        return _per_mtok(self.input_micro_usd, self.tokens.input)

    @property
    def output_usd_per_mtok(self) -> float | None:
        """Return dollars per million tokens answered."""
        return _per_mtok(self.output_micro_usd, self.tokens.output)

    @property
    def cached_usd_per_mtok(self) -> float | None:
        """Return dollars per million prompt tokens that the prefix cache held."""
        return _per_mtok(self.cached_micro_usd, self.tokens.cached)


def _per_mtok(micro_usd: int, tokens: float) -> float | None:
    return TOKENS_PER_MTOK * usd(micro_usd) / tokens if tokens > 0 else None


def token_charge(name: str, micro_usd: int, use: TokenUse) -> TokenCharge:
    """Divide a service's bill over its tokens; the parts sum to it exactly. A service without a token leaves it unread."""
    read_frac = use.read_frac if use.weights.total > 0 else 0.0
    read = [weight * read_frac for weight in (use.weights.input, use.weights.output, use.weights.cached)]
    unread = use.weights.total * (1 - read_frac) if use.weights.total > 0 else 1.0
    parts = apportion(micro_usd, [*read, unread])
    return TokenCharge(
        name=name,
        services=(name,),
        input_micro_usd=parts[0],
        output_micro_usd=parts[1],
        cached_micro_usd=parts[2],
        unread_micro_usd=parts[3],
        tokens=use.tokens,
        cached_known=use.cached_known,
        rules=(use.rule,),
        because=use.because,
    )


def token_charges(fleet: Fleet, micro_usd: Mapping[str, int]) -> tuple[TokenCharge, ...]:
    """Return the bill of every service whose tokens were read over its tokens, largest first.

    `micro_usd` is each workload's bill, by its name.
    """
    rows = [
        token_charge(workload.name, micro_usd[workload.name], use)
        for workload in fleet.workloads
        if workload.name in micro_usd and (use := token_use(workload)) is not None
    ]
    return tuple(sorted(rows, key=lambda row: (-row.micro_usd, row.name)))


def summed(rows: Iterable[TokenCharge], key: Callable[[str], str]) -> tuple[TokenCharge, ...]:
    """Add services up by what `key` says of their names (a team, a model), largest first."""
    members: dict[str, list[TokenCharge]] = {}
    for row in rows:
        members.setdefault(key(row.name), []).append(row)
    found = [_sum(name, of_name) for name, of_name in members.items()]
    return tuple(sorted(found, key=lambda row: (-row.micro_usd, row.name)))


def _sum(name: str, rows: list[TokenCharge]) -> TokenCharge:
    return TokenCharge(
        name=name,
        services=tuple(service for row in rows for service in row.services),
        input_micro_usd=sum(row.input_micro_usd for row in rows),
        output_micro_usd=sum(row.output_micro_usd for row in rows),
        cached_micro_usd=sum(row.cached_micro_usd for row in rows),
        unread_micro_usd=sum(row.unread_micro_usd for row in rows),
        tokens=TokenAmounts(
            input=sum(row.tokens.input for row in rows),
            output=sum(row.tokens.output for row in rows),
            cached=sum(row.tokens.cached for row in rows),
        ),
        cached_known=all(row.cached_known for row in rows),
        rules=tuple(dict.fromkeys(rule for row in rows for rule in row.rules)),
        because="; ".join(dict.fromkeys(row.because for row in rows)),
    )


UNATTRIBUTED = "unattributed"
"""Tokens that the server counted and no consumer reported, and hours of which no tokens were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerUse:
    """Tokens that a consumer (a tenant, an adapter, an API key) used of a service, as a gateway counted them."""

    service: str
    consumer: str
    tokens: TokenAmounts


def by_consumer(rows: Iterable[TokenCharge], uses: Sequence[ConsumerUse]) -> tuple[TokenCharge, ...]:
    """Divide each service's token charges over its consumers; what they did not report is unattributed.

    The parts sum to each service's bill exactly. Where consumers report more tokens than the server counted, the charge is
    divided by what they report, and the row says so.
    """
    of_service: dict[str, list[ConsumerUse]] = {}
    for use in uses:
        of_service.setdefault(use.service, []).append(use)
    found = [part for row in rows for part in _consumer_rows(row, of_service.get(row.name, []))]
    return summed(found, str)


def _consumer_rows(row: TokenCharge, uses: Sequence[ConsumerUse]) -> list[TokenCharge]:
    """Return one row for each consumer of a service, and one for the rest of its charge."""
    reported = [use.tokens if row.cached_known else _without_cached(use.tokens) for use in uses]
    rest = TokenAmounts(
        input=max(row.tokens.input - sum(tokens.input for tokens in reported), 0.0),
        output=max(row.tokens.output - sum(tokens.output for tokens in reported), 0.0),
        cached=max(row.tokens.cached - sum(tokens.cached for tokens in reported), 0.0),
    )
    amounts = [*reported, rest]
    parts = zip(
        _divided(row.input_micro_usd, [tokens.input for tokens in amounts]),
        _divided(row.output_micro_usd, [tokens.output for tokens in amounts]),
        _divided(row.cached_micro_usd, [tokens.cached for tokens in amounts]),
        strict=True,
    )
    names = [*(use.consumer for use in uses), UNATTRIBUTED]
    because = row.because + _excess(row, reported)
    return [
        replace(
            row, name=name, input_micro_usd=input_part, output_micro_usd=output_part, cached_micro_usd=cached_part,
            unread_micro_usd=row.unread_micro_usd if name == UNATTRIBUTED else 0, tokens=tokens, because=because,
        )
        for name, tokens, (input_part, output_part, cached_part) in zip(names, amounts, parts, strict=True)
    ]  # fmt: skip


def _without_cached(tokens: TokenAmounts) -> TokenAmounts:
    """Return amounts as a server counts them that does not tell cached tokens from others."""
    return TokenAmounts(input=tokens.input + tokens.cached, output=tokens.output, cached=0.0)


def _divided(micro_usd: int, amounts: Sequence[float]) -> list[int]:
    """Divide a charge by tokens; all of it is unattributed (the last part) where there are none."""
    return apportion(micro_usd, amounts if sum(amounts) > 0 else [*(0.0 for _ in amounts[:-1]), 1.0])


def _excess(row: TokenCharge, reported: Sequence[TokenAmounts]) -> str:
    total = sum(tokens.input + tokens.output + tokens.cached for tokens in reported)
    counted = row.tokens.input + row.tokens.output + row.tokens.cached
    if total <= counted * (1 + _COUNTED_ALIKE_FRAC):
        return ""
    return f"; consumers report {total / counted - 1:.0%} more tokens than the server counted" if counted else ""


_COUNTED_ALIKE_FRAC = 0.01
"""Windows of a gateway and a server do not start at the same request."""
