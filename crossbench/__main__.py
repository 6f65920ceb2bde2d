from crossbench.cli import main

raise SystemExit(main())
