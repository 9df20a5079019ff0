"""The batch place: where each field of a batch is in its slot."""
