"""How repositories are laid out: what checks them, and what a job must install first."""
