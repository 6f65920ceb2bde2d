"""Writes source code: what the adapters' programs share, and what is the same in any language.

An adapter's source.py says how its framework's users write each layer, loss and optimizer, and puts
these lines into a program.
"""
