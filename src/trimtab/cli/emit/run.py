"""What `trimtab emit` does once its arguments are read: recall the plan, write its files, list them in a safe order."""

from __future__ import annotations

from dataclasses import replace

from trimtab.cli.emit import EmitOptions
from trimtab.cli.emit.folder import write_folder
from trimtab.cli.kept_audits import recall, recall_plan
from trimtab.cli.output import Format, write_sheet
from trimtab.cli.screen import say
from trimtab.cli.sheet import Sheet, SheetColumn
from trimtab.emit.manifests.cluster_file import parse_cluster_file, with_cluster_file
from trimtab.emit.manifests.emission import STAGE_MEANING, Emission
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts
from trimtab.emit.manifests.hygiene_files import hygiene_files
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.inputs.files import read_text

_COLUMNS = (
    SheetColumn(key="stage", title="stage", whole=True),
    SheetColumn(key="path", title="file", whole=True),
    SheetColumn(key="kind", title="what"),
    SheetColumn(
        key="actions", title="actions", show=lambda cell: ", ".join(cell) if isinstance(cell, tuple) else str(cell)
    ),
)


def run_emit(options: EmitOptions) -> None:
    """Run the command."""
    kept = recall_plan()
    facts = _facts(kept.facts, options)
    emission = emit_plan(kept.plan, facts, only=options.only)
    if not options.only:
        emission = replace(emission, files=(*emission.files, *hygiene_files(recall(), facts)))
    if not options.dry_run:
        write_folder(options.out, {file.path: file.text for file in emission.files}, force=options.force)
    for_people = options.output_format is Format.TABLE
    write_sheet(_sheet(emission, options), options.output_format, fields=("path", "actions") if for_people else ())
    for action, subjects, reason in emission.grouped():
        say(f"left to you: {action}, {', '.join(subjects)}: {reason}", err=True)


def _facts(facts: EmitFacts, options: EmitOptions) -> EmitFacts:
    if options.cluster_file is not None:
        where = str(options.cluster_file)
        text = read_text(options.cluster_file)
        facts = with_cluster_file(facts, parse_cluster_file(text, where=where), where=where)
    return replace(facts, autoscaler=Autoscaler(options.autoscaler or facts.autoscaler), add_only=options.add_only)


def _sheet(emission: Emission, options: EmitOptions) -> Sheet:
    stages = emission.stages()
    return Sheet(
        columns=_COLUMNS,
        rows=[
            {
                "stage": f"{stages[file.stage]}. {STAGE_MEANING[file.stage]}",
                "path": file.path,
                "kind": file.kind,
                "actions": file.actions,
            }
            for file in emission.files
        ],
        section="stage",
        notes=(
            f"{len(emission.files)} files {'for' if options.dry_run else 'written to'} {options.out}; apply them stage by "
            f"stage, as APPLY.md there says. Nothing was applied.",
        ),
    )
