"""Does a run fit devices that are not available here, and how long does it take at least?

`hardware` describes devices, `published` models. `iteration` reads from a configuration which stages a run has and how
often their programs run, `holdings` what each holds: a `workload`. `analytic` sums its memory and arithmetic without a
compiler, `nearest` looks for a setting that fits. `programs` names the programs of a stage, `traced` counts their
operations, `compilation` compiles them ahead of time, `collectives` reads what devices send each other, `report` puts
the numbers into tables. `python -m dfc.launch.fit` is the command (`command`).
"""
