"""What was measured. Observers never judge."""
