"""The modes of the program apart from a run: validate, preflight, rehearse, plan and gather; for `action` and `cli`."""
