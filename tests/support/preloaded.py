"""Processes that worker processes are forked from: an interpreter of their own takes most of a second, torch seconds.

They start with the first loader that is given one, and end with the tests. What such an interpreter does is tested by
those that give none, as in engine/processes/test_processes.py and engine/processes/test_where_code_lives.py.
"""

import standpipe as sp

SERVER = sp.ForkServer()
TORCH = sp.ForkServer()  # of those that import it, and need the memory
