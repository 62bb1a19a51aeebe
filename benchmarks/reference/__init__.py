"""Optima and other programs that claims are held against: measuring scripts and tests import them, the product does not."""

from pathlib import Path

from trimtab._machine_code import machine_code_folder
from trimtab.replay.code_folder import keep_code_in


def _code_folder() -> str | None:
    return machine_code_folder(Path(__file__).parent)


keep_code_in("benchmarks", _code_folder)
