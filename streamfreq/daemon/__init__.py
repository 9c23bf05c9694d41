"""The daemon: poll, count, commit, publish, until told to stop."""
