"""A small fleet whose plan has actions of several levers, and the library of a server that shows its audit."""

from functools import cache

from tests.fleets import FleetRows, few_machines

from trimtab.cli.serve.run import gpu_hours
from trimtab.emit.audit_document import audit_document
from trimtab.emit.blocks import Page
from trimtab.errors import InputError
from trimtab.pipeline import kept_plan, verify_plan
from trimtab.pipeline.auditing import PlanningInput, audited
from trimtab.web.library import AuditEntry, CommitmentsQuestion, GpuHoursQuestion
from trimtab.web.plan_pages import CommitmentsResult
from trimtab.web.tables import MONEY, SHARE, WORDS, AllocatedBill, DataColumn, DataTable

DAYS = 28


def rows():
    """Two nodes in use at all hours, one that nobody holds, runs on nodes held around the clock, a notebook used by day."""
    fleet = FleetRows(DAYS).node("idle", "p4d.24xlarge")
    for n in range(2):
        fleet.node(f"n{n}", "p4d.24xlarge").hold("web/api", f"n{n}", range(8), owner_kind="Deployment", team="web")
        for device in range(8):
            fleet.use("web/api", f"n{n}", device, range(DAYS * 24), sm=0.8, memory_gib=39.0)
    fleet.node("runs", "g5.12xlarge").hold("lab/train", "runs", range(4), owner_kind="Job", team="lab")
    for day in range(DAYS):
        start = day * 24 + 9
        fleet.job("lab/train", start, start, start + 4, 4)
        for device in range(4):
            fleet.use("lab/train", "runs", device, range(start, start + 4), sm=0.7, memory_gib=12.0)
    fleet.node("desk", "g5.xlarge").hold("lab/notes", "desk", [0], owner_kind="Notebook", team="lab")
    working = [day * 24 + hour for day in range(DAYS) if day % 7 < 5 for hour in range(9, 17)]
    return fleet.use("lab/notes", "desk", 0, working, sm=0.3)


@cache
def whole():
    """Return the fleet's document, and the plan behind it."""
    found, made = _audited()
    return audit_document(found), made


@cache
def _audited():
    return audited(PlanningInput(bundle=rows().bundle(), catalog=few_machines(), name="small fleet"))


@cache
def verified():
    """Return the plan held against the history after its fit window, in which nobody enacted it."""
    catalog = few_machines()
    found, made = _audited()
    kept = kept_plan(found, rows().bundle(), made)
    return verify_plan(kept, rows().bundle(), catalog=catalog)


class Shelf:
    """A source of audits by hand: documents by name, and the plans of some of them."""

    def __init__(self, documents, plans=None, later=None):
        self.documents, self.plans, self.later, self.read = documents, plans or {}, later, []

    def entries(self):
        return [AuditEntry(name=name, stamp="") for name in self.documents]

    def document(self, name):
        self.read.append(name)
        if isinstance(self.documents[name], Exception):
            raise self.documents[name]
        return self.documents[name]

    def verified(self, name, tell):
        if name not in self.plans:
            raise InputError(f"the plan of audit {name} was not kept here")
        return self.later or verified()

    def later_stamp(self, name):
        return ""

    def allocated(self, name, asked, tell):
        """Split by the document, so that no history is needed."""
        spend = self.documents[name].spend
        split = {"team": spend.by_team, "workload": spend.by_workload, "kind": spend.by_kind}
        if asked.split not in split:
            raise InputError(f"no split by {asked.split} here")
        rows = split[asked.split]
        columns = (
            DataColumn(key="name", title="who", format=WORDS),
            DataColumn(key="usd", title="$", format=MONEY),
            DataColumn(key="share_frac", title="share", format=SHARE),
        )
        paid = [{"name": row.name, "usd": row.usd_mo, "share_frac": row.share_frac} for row in rows]
        table = DataTable(key="allocation", title="Allocation", columns=columns, rows=paid)
        return AllocatedBill(table=table, notes=(f"idle {asked.idle}",))

    def worked_out(self, name, question, tell):
        if name not in self.plans:
            raise InputError(f"the history of audit {name} is not here")
        match question:
            case CommitmentsQuestion():
                columns = (DataColumn(key="day", title="day"), DataColumn(key="buy_nodes", title="buy"))
                steps = DataTable(key="commitments", title="Commitments", columns=columns, rows=[])
                page = Page(
                    brand="trimtab commit", title="Commitments", subject="small fleet", seen="28 days", sections=()
                )
                return CommitmentsResult(page=page, document={"schema_version": 1, "basis": "as it was"}, steps=steps)
            case GpuHoursQuestion():
                return gpu_hours(rows().bundle(), question.workload)

    def running(self):
        return ()

    def plan(self, name, tell):
        if name not in self.plans:
            raise InputError(f"the history of audit {name} is not here")
        return self.plans[name]
