"""What `benchmarks.ingest` and `benchmarks.scaling` are made of."""
