"""`transom doctor`: what is wrong with an installation, a pipeline file or a checkpoint, and what to do about it."""
