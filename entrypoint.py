"""Where the container starts. Takes: the environment. Gives: the exit code of the action. May touch: nothing itself."""

import signal

# Loading the program takes a second, in which a container's first process would not even see a signal.
early: list[int] = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _frame: early.append(number))

from stepflow.action import main  # noqa: E402

raise SystemExit(main(early))
