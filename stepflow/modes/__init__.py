"""The modes of the program other than a run: validate, preflight, rehearse, plan and gather. Used by `action` and
`cli`."""
