"""`streamfreq demo`: the real daemon on real text, on embedded parts, shown live."""
