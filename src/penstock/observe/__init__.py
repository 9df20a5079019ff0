"""Looks at loaders, ours and others', from outside: it stands where a user stands, and sees public names only."""

from penstock.observe.verdict import Verdict

__all__ = ["Verdict"]
