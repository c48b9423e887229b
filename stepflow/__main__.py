"""`python -m stepflow` is the command `stepflow`."""

import sys

from stepflow.cli import main

sys.exit(main())
