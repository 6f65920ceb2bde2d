"""Defines the errors that a user can fix; each is shown as one line, without a traceback."""


class CrossbenchError(Exception):
    """The base class of the errors here; str() is one line: what is wrong, where, what to do."""


class SpecError(CrossbenchError, ValueError):
    """An argument or a model is invalid or does not exist."""


class DataError(CrossbenchError):
    """A data file is damaged or missing, or there is no disk space for the data."""


class ResultsError(CrossbenchError):
    """A results file cannot be read or written."""


class ReportError(CrossbenchError):
    """A page cannot be written: a package lacks, or the file exists."""


class ProgramError(CrossbenchError):
    """A program cannot be written: its file exists, or its folder cannot be used."""


class OutputError(CrossbenchError):
    """The standard output is closed or cannot be written to."""
