"""Wrap an adapter's DeviceArrays so that they do not do the work that is timed."""

from __future__ import annotations


class FaultyArrays:
    """Passes every call on to the adapter's own arrays; each fault replaces one or two."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __getattr__(self, name):
        return getattr(self.arrays, name)


class SameBuffer(FaultyArrays):
    """Returns the source as its copy."""

    def copy(self, source, into):
        return source


class SameBufferInSecret(SameBuffer):
    """Returns the source as its copy, and does not tell addresses."""

    def address(self, array):
        return None


class Late:
    """Stands for an array that is computed when it is fetched."""

    def __init__(self, compute):
        self.compute, self.value = compute, None

    def array(self):
        if self.compute:
            self.value, self.compute = self.compute(), None
        return self.value


class ReturnsAtOnce(FaultyArrays):
    """Does the work after the call has returned."""

    def fetch(self, array, step=1):
        return self.arrays.fetch(array.array() if isinstance(array, Late) else array, step)

    def address(self, array):
        return self.arrays.address(array.array() if isinstance(array, Late) else array)

    def multiply(self, a, b, into):
        target = into.array() if isinstance(into, Late) else into
        return Late(lambda: self.arrays.multiply(a, b, target))

    def copy(self, source, into):
        target = into.array() if isinstance(into, Late) else into
        return Late(lambda: self.arrays.copy(source, target))


class Remembers(FaultyArrays):
    """Computes once, and returns the first result ever after."""

    product = copied = None

    def multiply(self, a, b, into):
        if self.product is None:
            self.product = self.arrays.multiply(a, b, into)
        return self.product

    def copy(self, source, into):
        if self.copied is None:
            self.copied = self.arrays.copy(source, into)
        return self.copied


class LeavesOutTheRest(FaultyArrays):
    """Returns the arrays that it is given to write to, as they are."""

    def multiply(self, a, b, into):
        return into

    def copy(self, source, into):
        return into
