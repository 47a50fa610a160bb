"""One jitted update, packing, optimizer and checkpoints."""
