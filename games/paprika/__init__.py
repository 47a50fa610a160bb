"""The ten task groups of Paprika: six whose rules are a program, four whose world answers in words."""
