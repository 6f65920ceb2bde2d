"""Hold the records of a comparison, its statistics and its file. Imports nothing of the engine."""
