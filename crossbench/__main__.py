from crossbench import signals

signals.exit_at_once()  # Ctrl-C while the rest is imported

from crossbench.cli import main  # noqa: E402

raise SystemExit(main())
