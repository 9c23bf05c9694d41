"""trainer: online fine-tuning that re-weights its loss and its sampler from live snapshots."""
