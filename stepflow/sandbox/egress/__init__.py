"""A network of listed hosts: the sandbox reaches the hosts that are listed, through the parent, and nothing else."""
