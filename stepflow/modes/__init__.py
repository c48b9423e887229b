"""What the program can do beside one run: validate, preflight, rehearse, plan and gather; for `action` and `cli`."""
