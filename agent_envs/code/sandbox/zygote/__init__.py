"""What runs on the far side: a warm interpreter that forks for every run, and the cage it puts each of them into.

Invariant: only the standard library and this folder are imported here. The sources of the folder are sent to a bare
interpreter, on this machine or in a container, which can read no other file of the project. The less that interpreter
holds in memory, the faster it forks: modules that few programs use are imported where they are needed, and data are
named tuples (``dataclasses`` brings ``inspect`` along).

``keeper`` starts the zygote and cleans up after it; ``loop`` forks; ``run`` supervises one run; ``payload`` is what
becomes the program; a way (``namespace``, ``landlock``, ``process``, ``container``) says how a run is caged.
"""
