"""Tests that need root: each runs its body in a sandbox of its own and leaves nothing behind."""
