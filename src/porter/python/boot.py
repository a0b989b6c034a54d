# Executed with `python3 -c`: reads the worker from descriptor 3, whose first line holds its modules.
import os
import sys

# Before anything of the plugin's runs: nothing that it starts has these two.
os.set_inheritable(3, False)
os.set_inheritable(4, False)
if sys.version_info < (3, 8):
    version = "%d.%d" % sys.version_info[:2]
    text = "%s is Python %s: a plugin needs 3.8 or newer" % (sys.executable, version)
    os.write(4, ('{"failed":"%s"}\n' % text.replace("\\", "/").replace('"', "'")).encode())
    sys.exit(1)
# The working directory is the plugin's: its files must not take the place of the standard library's.
sys.path[:] = [place for place in sys.path if place]

import json
import linecache
import types

requests = open(3, "rb", closefd=False)
first = json.loads(requests.readline())
house = types.ModuleType("_guild_hall")
house.__path__ = []
sys.modules["_guild_hall"] = house
for name, source in first["modules"]:
    file = "<guild-hall>/%s.py" % name
    # So that a traceback shows its lines.
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    module = types.ModuleType("_guild_hall." + name)
    module.__file__ = file
    sys.modules[module.__name__] = module
    setattr(house, name, module)
    exec(compile(source, file, "exec"), module.__dict__)
sys.exit(house.worker.main(requests, first["start"]))
