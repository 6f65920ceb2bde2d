"""Run the measurement: worker processes, the proof of sameness, and the rounds of timed epochs."""
