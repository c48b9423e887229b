"""`python -m stepflow` is the command `stepflow`.

Takes: argv. Gives: the exit code.
May touch: what the command touches.
"""

import sys

from stepflow.cli import main

sys.exit(main())
