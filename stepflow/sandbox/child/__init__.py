"""The program on the hostile side: standard library only, started by exec as a process of its own."""
