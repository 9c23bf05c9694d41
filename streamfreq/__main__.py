"""`python -m streamfreq` is the command `streamfreq`."""

from streamfreq.cli import main

main()
