"""Know the machine that a run is on: processor, memory, GPUs, signals, temporary directories."""
