"""Run functions in threads that nobody waits for after Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Make a pool of threads; at the end, drop what is not begun and do not wait for the rest."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
