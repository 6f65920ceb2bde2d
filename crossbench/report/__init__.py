"""Comparisons for people to read. Imports results only."""
