"""A path policy of one's own: of two random paths, the one whose recent round trips were shorter."""


class TwoChoices:
    """One object per destination; `paths` are the paths to it."""

    react = True  # losses take a path out of use, marks and trims have it skipped once

    def __init__(self, paths):
        self.paths = paths

    def next(self, now):
        """The path of the next packet, or None while every port is full."""
        ready = self.paths.ready(now)
        if not ready:
            return None
        one, other = self.paths.rng.choice(ready), self.paths.rng.choice(ready)
        return one if one.extra_ns <= other.extra_ns else other
