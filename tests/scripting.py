"""Run `script` in this process, for its tests."""

from crossbench import cli


def invoke(capsys, *words):
    """Run the command; return exit status, standard output and error."""
    try:
        status = cli.main(["script", *map(str, words)])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def files(folder):
    return sorted(path.name for path in folder.iterdir())
