"""What starts a run: the event, the inputs, and the policy that narrows them."""
