"""Does a run fit devices that are not here, and how long can it take at the least?

`hardware` describes devices, `published` models, `iteration` reads from a configuration what a run holds and how often
its programs run, `analytic` sums memory and arithmetic without a compiler, `traced` counts the operations of a program,
`programs` names the programs of a run, `compilation` compiles them ahead of time, `collectives` reads what devices send
each other, `report` puts the numbers into tables. `python -m dfc.launch.fit` is the command (`command`).
"""
