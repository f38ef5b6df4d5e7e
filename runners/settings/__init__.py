"""Settings of runs: what a run is, and how its episodes are played."""
