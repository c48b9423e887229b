"""Where the container starts. Takes: the environment. Gives: the exit code of the action. May touch: nothing itself."""

from stepflow.action import main

raise SystemExit(main())
