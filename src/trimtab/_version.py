"""The version of trimtab."""

__version__ = "0.2.0"
