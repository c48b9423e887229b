"""The program on the hostile side: standard library only, started by exec as a process of its own.

Takes: requests as frames on standard input. Gives: answers as frames on standard output.
May touch: the checkout and processes, as the unprivileged user it becomes first.
"""
