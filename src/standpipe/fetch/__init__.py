"""Bytes of objects behind URLs: the process that gets them, and the trainer's handle of it."""
