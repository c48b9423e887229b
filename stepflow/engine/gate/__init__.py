"""What did the step say: answer in, `Decision` out."""
