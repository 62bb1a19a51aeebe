"""What a notebook shows of a value: a table, made by the report's own writers and by nothing else.

The values are of the core, which knows no writer; so a view is looked up when a notebook asks for it.
"""

from __future__ import annotations

from importlib import import_module

_VIEWS = "trimtab.emit.notebook"


class ShownInNotebook:
    """A value with a view in `trimtab.emit.notebook`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the view as HTML without scripts, fonts or pictures from elsewhere."""
        html: str = import_module(_VIEWS).notebook_html(self)
        return html
