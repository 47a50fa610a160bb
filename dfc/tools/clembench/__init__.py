"""The original benchmark, clembench: its framework asks our policies, and its results are read and written.

Only `dfc.tools.clembench.backend` needs the framework, clemcore: ``pip install "dfc[clembench]"``, in an environment of
its own, since it wants older packages than dfc.
"""
