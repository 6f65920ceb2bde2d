"""Start the command line: `python -m crossbench`."""

from crossbench.host import signals

signals.exit_at_once()  # before the slow imports, so that Ctrl-C ends them without a traceback

from crossbench.cli import main  # noqa: E402

raise SystemExit(main())
