"""`python -m benchmarks.decoding --help` answers before the large packages are imported.

Scripts import Keras and the others at their top, which takes seconds. If the command line asks for
help, stand-ins take the place of all packages that are not Python's or ours: the script defines its
options, prints them and ends, and computes nothing.
"""

import importlib.abc
import importlib.machinery
import sys

OUR_SCRIPTS = ("benchmarks", "examples")


class StandIn:
    """Anything of a package: it allows all that a script does with it before it reads options."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __contains__(self, item):
        return True

    def __iter__(self):
        return iter(())

    def __mro_entries__(self, bases):
        return ()


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports an empty module, whose names are stand-ins, for each package of others."""

    def find_spec(self, fullname, path, target=None):
        package = fullname.partition(".")[0]
        if package in OUR_SCRIPTS or package in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module):
        module.__getattr__ = lambda name: StandIn()


# While Python looks for the module of `python -m`, the first argument is `-m`.
if sys.argv[0] == "-m" and not {"-h", "--help"}.isdisjoint(sys.argv):
    sys.meta_path.insert(0, StandIns())
