"""Adjacent native transforms become one kernel, and the steps of a sample one program."""
