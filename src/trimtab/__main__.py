"""`python -m trimtab` is the command line, for an interpreter whose scripts are not on the path."""

from trimtab.cli import main

main()
