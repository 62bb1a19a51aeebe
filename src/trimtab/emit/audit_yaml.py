"""The audit's document as YAML: the same keys as the JSON."""

from __future__ import annotations

import yaml

from trimtab.emit.document import AuditDocument

_WIDTH = 120


def render_yaml(document: AuditDocument) -> str:
    """Return the document as YAML text."""
    return yaml.safe_dump(document.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=_WIDTH)
