"""The original benchmark, clembench: its framework plays with policies of dfc, and its results are read and written.

Only `dfc.tools.clembench.backend` needs the framework, clemcore: ``pip install "dfc[clembench]"``, in an environment of
its own, since it needs older packages than dfc.
"""
