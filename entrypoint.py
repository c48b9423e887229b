"""Where the container starts: the action, or, with arguments, the command `stepflow`."""

import signal
import sys

if arguments := sys.argv[1:]:
    # `docker run IMAGE demo` and `docker run IMAGE stepflow demo`: a terminal. The runner gives no arguments.
    sys.argv = ["stepflow", *arguments[arguments[0] == "stepflow" :]]
    from stepflow.cli import main as run_command

    raise SystemExit(run_command())

# Loading the program takes a second, in which a container's first process would not even see a signal.
early: list[int] = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _frame: early.append(number))

from stepflow.action.main import main  # noqa: E402

raise SystemExit(main(early))
