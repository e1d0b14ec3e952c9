"""From a workload to a record: compile, time, check. Timing here; the program's metrics later."""
