"""One file or folder a method, each reads like its paper; `loop` is the shortest one."""
