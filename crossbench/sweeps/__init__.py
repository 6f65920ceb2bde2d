"""Runs many comparisons, on this machine or on several. Nothing below `crossbench.run` knows it."""
