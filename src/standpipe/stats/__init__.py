"""Values that say how a run goes: counters, memory by owner, bad samples."""
