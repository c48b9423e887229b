"""What comes next: definition and ports in, `FlowEnded` out."""
