"""What holds for all tests."""

import signal

# A shell without job control, such as a script that runs the tests in the background, has its children ignore
# Ctrl-C, and theirs in turn. Programs that tests start and interrupt shall not.
signal.signal(signal.SIGINT, signal.default_int_handler)
