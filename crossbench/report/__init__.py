"""Present comparisons to people. Imports results only."""
