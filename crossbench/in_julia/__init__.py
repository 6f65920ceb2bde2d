"""What the adapters of frameworks in Julia share: finding, installing and starting Julia, the
workload that calls it, and the source code of programs. It names no framework.
"""
