"""Text from outside, as people see it on GitHub's page: what the page does not show, a model does not see either."""
