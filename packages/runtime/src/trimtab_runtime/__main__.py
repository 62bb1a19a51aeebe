"""`python -m trimtab_runtime`: the command line, where no script is on the path."""

from trimtab_runtime.cli import main

main()
