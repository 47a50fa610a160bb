"""What no method needs: sums of memory and time, the server, the original benchmark, makers of small models."""
