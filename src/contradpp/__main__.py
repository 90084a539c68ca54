"""`python -m contradpp` is the `contradpp` command."""

from contradpp.cli.main import main

main()
