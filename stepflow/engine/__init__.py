"""What comes next: definition and ports in, `FlowResult` out."""
