"""What a person reads: the verdict, progress, and what a failure is worth."""
