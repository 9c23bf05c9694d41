"""What the chaos trial is made of: services and workers, faults, feeder, watcher, oracle."""
