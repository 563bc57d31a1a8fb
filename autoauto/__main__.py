"""`python -m autoauto`."""

from autoauto.cli import main

raise SystemExit(main())
