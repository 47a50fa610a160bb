"""The ten task groups of Paprika: six that a program plays, four whose world answers in words."""
