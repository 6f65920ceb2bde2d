"""What goes wrong for a reason that the user can mend: one line each, no traceback."""


class CrossbenchError(Exception):
    """The base of the package's own errors; str() is one line: what, where, what to do."""


class SpecError(CrossbenchError, ValueError):
    """Something that was asked for does not exist or makes no sense."""


class DataError(CrossbenchError):
    """A data file is damaged or missing, or there is no room for the data."""


class ResultsError(CrossbenchError):
    """A results file cannot be read or written."""


class OutputError(CrossbenchError):
    """The standard output is closed or full."""
