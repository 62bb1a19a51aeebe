"""Reviews of changes: the JSON files that `trimtab review -o json` wrote, as a list and a page each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trimtab.emit.html.markup import Html, tag
from trimtab.emit.money import dollars
from trimtab.errors import InputError
from trimtab.inputs.files import read_bytes
from trimtab.web.layout import Place, TablePlace, page, panel, safe, table_html
from trimtab.web.tables import SHARE, CellFormat, DataColumn, DataTable, Row, TableQuestion

MOST_BYTES = 5_000_000
"""Of one file; a review of 1,000 workloads has about 400 kB."""
_BROKEN = "BROKEN"
_NOT_JUDGED = "not judged"
_SIGNED = CellFormat(
    show=lambda value: f"{value:+,.0f}" if isinstance(value, int | float) else "–", right=True, in_workbook="#,##0"
)


class ReviewRow(BaseModel):
    """One line of a review: a workload, or one of its targets."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    workload: str
    change_usd_mo: float | None = None
    changes: str | None = None
    target: str | None = None
    before_frac: float | None = None
    after_frac: float | None = None
    required_frac: float | None = None
    verdict: str | None = None


class _ReviewFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    schema_version: int
    rows: tuple[ReviewRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReview:
    """A review that was kept: when its file was written, and its lines."""

    name: str
    written: datetime
    rows: tuple[ReviewRow, ...]

    @property
    def change_usd_mo(self) -> float:
        """Return what the change adds to the bill, dollars a month; negative where it saves."""
        return sum(row.change_usd_mo or 0.0 for row in self.rows)

    @property
    def broken(self) -> int:
        """Return how many targets that were kept are missed with the change."""
        return sum(row.verdict == _BROKEN for row in self.rows)

    @property
    def unjudged(self) -> int:
        """Return how many workloads could not be judged."""
        return sum(row.verdict == _NOT_JUDGED for row in self.rows)

    @property
    def verdict(self) -> str:
        """Return the outcome in a few words."""
        if self.broken:
            return f"breaks {self.broken} target{'s' if self.broken > 1 else ''}"
        return f"{self.unjudged} not judged" if self.unjudged else "keeps every target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFolder:
    """The folder in which a pipeline leaves reviews, one file per change; None where the server was given none."""

    folder: Path | None = None

    def names(self) -> tuple[str, ...]:
        """Return the names of the files without `.json`, the latest first."""
        if self.folder is None:
            return ()
        files = sorted(self.folder.glob("*.json"), key=lambda file: (-file.stat().st_mtime_ns, file.name))
        return tuple(file.stem for file in files)

    def review(self, name: str) -> KeptReview:
        """Read one of `names`; raises InputError where its file is not a review."""
        assert self.folder is not None
        file = self.folder / f"{name}.json"
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file.name} is larger than {MOST_BYTES:,} bytes: it is not a review")
        try:
            found = TypeAdapter(_ReviewFile).validate_json(read_bytes(file))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(
                f"{file.name} is not a review: {where or 'the file'}: {first['msg']}; write it with `trimtab review -o json`"
            ) from error
        written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        return KeptReview(name=name, written=written, rows=found.rows)

    def table(self) -> DataTable:
        """Return the reviews, a row each; one that cannot be read says why."""
        rows: list[Row] = []
        for name in self.names():
            try:
                found = self.review(name)
            except InputError as error:
                rows.append({"name": name, "written": None, "change_usd_mo": None, "verdict": str(error)})
                continue
            rows.append(
                {
                    "name": name,
                    "written": f"{found.written:%Y-%m-%d %H:%M}",
                    "change_usd_mo": round(found.change_usd_mo, 2),
                    "verdict": found.verdict,
                }
            )
        return DataTable(key="reviews", title="Reviews", columns=REVIEW_COLUMNS, rows=rows)


REVIEW_COLUMNS = (
    DataColumn(key="name", title="change"),
    DataColumn(key="written", title="reviewed, UTC", less=True, whole=True),
    DataColumn(key="change_usd_mo", title="$/month", format=_SIGNED),
    DataColumn(key="verdict", title="outcome"),
)


def review_path(name: str) -> str:
    """Return the address of a review's page."""
    return f"/reviews/{quote(name, safe='')}"


def reviews_page(reviews: ReviewFolder, question: TableQuestion) -> str:
    """Return the list of reviews."""
    place = Place(title="Reviews of changes", section="reviews")
    if reviews.folder is None:
        how = tag("code", "trimtab serve --reviews DIR")
        keep = tag("code", "trimtab review k8s/ fleet/ -o json --out DIR/pr-123.json")
        return page(
            place,
            panel(
                "No folder of reviews", tag("p", "Let the pipeline keep each review: ", keep), tag("p", "Then ", how)
            ),
        )
    table = reviews.table()
    links = {"name": {name: review_path(name) for name in reviews.names()}}
    where = TablePlace(path="/reviews", files="/reviews/table", kept={"q": question.words} if question.words else {})
    body = table_html(table, question, where, links=links, filtered=True)
    return page(place, panel("Latest first", body if table.rows else tag("p", "No review is kept here yet.")))


def review_page(found: KeptReview, question: TableQuestion) -> str:
    """Return one review: what the change costs, and what it does to each target."""
    place = Place(title=found.name, section="reviews", trail=(("Reviews", "/reviews"),))
    change = found.change_usd_mo
    bill = "The bill stays as it is." if not round(change) else ""
    bill = bill or f"It {'adds' if change > 0 else 'saves'} {dollars(abs(change))} a month."
    tone = "tone-bad" if found.broken else "tone-warn" if found.unjudged else "tone-good"
    where = TablePlace(
        path=review_path(found.name), files=f"{review_path(found.name)}/table", kept={"q": question.words}
    )
    return page(
        place,
        tag("p", bill, " It ", tag("strong", found.verdict, class_=tone), ".", class_="headline"),
        tag("p", f"Reviewed {found.written:%-d %B %Y, %H:%M} UTC.", class_="soft"),
        _changes(found.rows),
        panel("Target by target", table_html(review_table(found), question, where, filtered=True)),
    )


def _changes(rows: Sequence[ReviewRow]) -> Html:
    items = [
        tag("li", tag("strong", safe(row.workload)), f": {safe(row.changes)}")
        for row in rows
        if row.changes and row.changes != "nothing"
    ]
    return panel("What changes", tag("ul", *items, class_="plain")) if items else Html()


def review_table(found: KeptReview) -> DataTable:
    """Return the lines of a review."""
    columns = (
        DataColumn(key="workload", title="workload"),
        DataColumn(key="change_usd_mo", title="$/month", format=_SIGNED),
        DataColumn(key="target", title="target", less=True),
        DataColumn(key="before_frac", title="before", format=SHARE, less=True),
        DataColumn(key="after_frac", title="after", format=SHARE),
        DataColumn(key="required_frac", title="needs", format=SHARE),
        DataColumn(key="verdict", title="outcome"),
    )
    rows = [{column.key: getattr(row, column.key) for column in columns} for row in found.rows]
    return DataTable(key="review", title="Review", columns=columns, rows=rows)
